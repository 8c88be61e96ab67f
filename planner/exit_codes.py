"""With which status does the command end? The table that scripts rely on."""

from __future__ import annotations

from launch.errors import (
    CheckpointError,
    HostFileError,
    HostUnreachableError,
    InfeasiblePlanError,
    InvalidPlanError,
    LaunchError,
    UnknownStrategyError,
    UnsafeHostError,
    UseCaseError,
)
from planner.errors import PlannerError
from probes.errors import InvalidHardwareError, ProbeError

BUG = 8
_LAUNCH: tuple[tuple[type[LaunchError | ProbeError], int, str], ...] = (
    (UnsafeHostError, 7, "unsafe_host"),
    (HostFileError, 2, "host_file"),
    (HostUnreachableError, 4, "host"),
    (UseCaseError, 2, "use_case"),
    (CheckpointError, 2, "checkpoint"),
    (UnknownStrategyError, 2, "strategy"),
    (InfeasiblePlanError, 3, "no_plan"),
    (InvalidPlanError, 2, "plan"),
    (InvalidHardwareError, 6, "corrupt"),
    (LaunchError, 1, "launch"),
    (ProbeError, BUG, "probe"),
)


def judge(error: Exception) -> tuple[int, str] | None:
    """Give exit status and a short word for an error of ours, ``None`` for one that is a bug."""
    if isinstance(error, PlannerError):
        return error.exit_code, error.kind
    for kind, code, word in _LAUNCH:
        if isinstance(error, kind):
            return code, word
    return None
