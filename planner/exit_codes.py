"""Exit status and kind of each error: the table that scripts rely on."""

from __future__ import annotations

from signal import SIGINT

from launch import errors as launch
from planner import errors
from probes.errors import InvalidDocumentError, ProbeError

BUG = 8
_CODES: dict[type[Exception], tuple[int, str]] = {
    errors.UsageError: (2, "usage"),
    errors.StoreError: (6, "store"),
    errors.StoreLockedError: (6, "locked"),
    errors.StoreCorruptError: (6, "corrupt"),
    errors.StoreUnwritableError: (6, "unwritable"),
    errors.StoreUnreachableError: (6, "unreachable"),
    errors.StoreNewerError: (6, "newer"),
    errors.StoreUrlError: (2, "database_url"),
    errors.PlanFileError: (2, "plan_file"),
    errors.GridFileError: (2, "grid_file"),
    errors.NoPlanError: (3, "no_plan"),
    errors.NoJobError: (3, "no_job"),
    errors.ConflictError: (2, "conflict"),
    errors.SupervisorError: (1, "supervisor"),
    errors.NoTrainingError: (3, "no_training"),
    errors.NoSweepError: (3, "no_sweep"),
    errors.RunDirectoryError: (2, "run_directory"),
    errors.StalePlanError: (5, "stale_plan"),
    errors.RefusedError: (7, "refused"),
    errors.OutputError: (1, "output"),
    errors.CancelledError: (128 + SIGINT, "signal"),
    errors.TrainingFailedError: (1, "training"),
    launch.UnsafeHostError: (7, "unsafe_host"),
    launch.HostFileError: (2, "host_file"),
    launch.HostUnreachableError: (4, "host"),
    launch.MachineBusyError: (7, "busy"),
    launch.UseCaseError: (2, "use_case"),
    launch.ScriptError: (2, "script"),
    launch.ScriptFailedError: (1, "script"),
    launch.ExportError: (1, "export"),
    launch.ExportTargetError: (2, "export_target"),
    launch.CheckpointError: (2, "checkpoint"),
    launch.UnknownStrategyError: (2, "strategy"),
    launch.InfeasiblePlanError: (3, "no_plan"),
    launch.InvalidPlanError: (2, "plan"),
    launch.LaunchError: (1, "launch"),
    InvalidDocumentError: (6, "corrupt"),
    ProbeError: (BUG, "probe"),
}
"""By class; an error counts as its nearest base class in the table."""


def classify_error(error: Exception) -> tuple[int, str] | None:
    """Give exit status and kind of an error; ``None`` for an unexpected one, which is a bug."""
    return next((_CODES[base] for base in type(error).__mro__ if base in _CODES), None)
