"""Restarts of a training after an accident, where the user wants them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from launch.checkpoints.folder import list_checkpoints
from launch.errors import CheckpointError, HostUnreachableError, LaunchError
from launch.hosts.host_line import Host
from planner.errors import CancelledError, PlannerError, TrainingFailedError, UsageError
from planner.jobs.launch_request import LaunchRequest

_RETRY_DELAY_S = 10.0
"""What is wrong with all hosts at once, such as a switch that starts anew, may be over then."""

T = TypeVar("T")


def run_with_restarts(
    request: LaunchRequest,
    attempt: Callable[[LaunchRequest, Sequence[Host] | None], T],
    find_hosts: Callable[[], Sequence[Host]],
    warn: Callable[[str], None],
    *,
    pause: Callable[[float], None] = time.sleep,
) -> T:
    """Train; go on from the last checkpoint after an accident, on the hosts that still answer.

    ``attempt`` trains on the hosts that it is given, or on the user's own where it gets none.

    An error of the user's own code would only come again, so it is none. Where hosts fail their
    checks, that is tried again too.

    Raises:
        UsageError: There would be nothing to go on from.
        TrainingFailedError: The training failed once too often, or not by an accident.
    """
    check_restarts(request)
    accident: TrainingFailedError | None = None
    most = request.max_restarts
    for left in range(most, -1, -1):
        try:
            return attempt(request, None if accident is None else find_hosts())
        except TrainingFailedError as error:
            if left == 0 or not error.is_accident:
                raise
            accident = error
            request = _request_from_checkpoint(
                request, accident, f"{left} of {most} restarts left", warn
            )
        except HostUnreachableError as error:
            if accident is None:
                raise
            if left == 0:
                raise _combine_errors(accident, error) from error
            warn(f"{error}: trying again in {_RETRY_DELAY_S:.0f} s, {left} of {most} restarts left")
            pause(_RETRY_DELAY_S)
        except (LaunchError, PlannerError) as error:
            if accident is None or isinstance(error, CancelledError):
                raise
            raise _combine_errors(accident, error) from error
    raise AssertionError("the last attempt returns or raises")


def check_restarts(request: LaunchRequest) -> None:
    """Check that a training which is to be restarted writes checkpoints.

    Raises:
        UsageError: It does not.
    """
    if request.max_restarts and request.checkpoint.folder is None:
        raise UsageError(
            f"--max-restarts {request.max_restarts} and no --checkpoint: name a folder"
        )


def _request_from_checkpoint(
    request: LaunchRequest,
    accident: TrainingFailedError,
    how_often: str,
    warn: Callable[[str], None],
) -> LaunchRequest:
    """Give what the user wants after an accident: the same, from the last checkpoint."""
    assert request.checkpoint.folder is not None, "else there are no restarts"
    try:
        has_any = bool(list_checkpoints(Path(request.checkpoint.folder)))
    except LaunchError as error:
        raise _combine_errors(accident, error) from error
    if not has_any and accident.checkpoint is not None:
        elsewhere = CheckpointError(
            f"the checkpoint {accident.checkpoint} is not on this machine: launch from the first "
            "host, or give --checkpoint a folder that both see, and go on with --resume"
        )
        raise _combine_errors(accident, elsewhere)
    whence = "from the last checkpoint" if has_any else "from the start"
    warn(f"{accident}: going on {whence}, {how_often}")
    return replace(request, resume=has_any)


def _combine_errors(accident: TrainingFailedError, obstacle: Exception) -> TrainingFailedError:
    message = f"{accident}; and it cannot go on: {obstacle}"
    return TrainingFailedError(message, log_tail=accident.log_tail)
