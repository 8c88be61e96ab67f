"""What becomes of a training that an accident has ended? It goes on, where the user wants that."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from launch.checkpoints.folder import list_checkpoints
from launch.errors import CheckpointError, HostUnreachableError, LaunchError
from planner.errors import PlannerError, TrainingFailedError, UsageError

if TYPE_CHECKING:
    from launch.hosts.line import Host
    from planner.job_making import LaunchRequest

_PAUSE_S = 10.0
"""What is wrong with all hosts at once, such as a switch that starts anew, may be over then."""

Attempt = Callable[["LaunchRequest", Sequence["Host"] | None], None]
"""Trains as the user wants it, on these hosts; on the user's own where that is ``None``."""


def run_with_restarts(
    request: LaunchRequest,
    attempt: Attempt,
    find_hosts: Callable[[], Sequence[Host]],
    warn: Callable[[str], None],
    *,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Train; go on from the last checkpoint after an accident, on the hosts that still answer.

    An error of the user's own code would only come again, so it is none. Where hosts fail their
    checks, that is tried again too.

    Args:
        request: What the user wants.
        attempt: Trains.
        find_hosts: Gives the hosts that can train now.
        warn: Takes what the user should hear.
        pause: Waits for so many seconds.

    Raises:
        UsageError: There would be nothing to go on from.
        TrainingFailedError: The training failed once too often, or not by an accident.
    """
    if request.max_restarts and request.checkpoint is None:
        raise UsageError(
            f"--max-restarts {request.max_restarts} and no --checkpoint: name a folder"
        )
    accident: TrainingFailedError | None = None
    most = request.max_restarts
    for left in range(most, -1, -1):
        try:
            attempt(request, None if accident is None else find_hosts())
        except TrainingFailedError as error:
            if left == 0 or not error.is_accident:
                raise
            accident = error
            request = _going_on(request, accident, f"{left} of {most} restarts left", warn)
        except HostUnreachableError as error:
            if accident is None:
                raise
            if left == 0:
                raise _told_together(accident, error) from error
            warn(f"{error}: trying again in {_PAUSE_S:.0f} s, {left} of {most} restarts left")
            pause(_PAUSE_S)
        except (LaunchError, PlannerError) as error:
            if accident is None:
                raise
            raise _told_together(accident, error) from error
        else:
            return


def _going_on(
    request: LaunchRequest,
    accident: TrainingFailedError,
    how_often: str,
    warn: Callable[[str], None],
) -> LaunchRequest:
    """Give what the user wants after an accident: the same, from the last checkpoint."""
    assert request.checkpoint is not None, "else there are no restarts"
    try:
        has_any = bool(list_checkpoints(request.checkpoint))
    except LaunchError as error:
        raise _told_together(accident, error) from error
    if not has_any and accident.checkpoint is not None:
        raise _told_together(accident, _unseen(accident.checkpoint))
    whence = "from the last checkpoint" if has_any else "from the start"
    warn(f"{accident}: going on {whence}, {how_often}")
    return replace(request, resumes=has_any)


def _unseen(checkpoint: Path) -> CheckpointError:
    """Say that there is a checkpoint to go on from, and not on this machine."""
    return CheckpointError(
        f"the checkpoint {checkpoint} is not on this machine: launch from the first host, or give "
        "--checkpoint a folder that both see, and go on with --resume"
    )


def _told_together(accident: TrainingFailedError, obstacle: Exception) -> TrainingFailedError:
    message = f"{accident}; and it cannot go on: {obstacle}"
    return TrainingFailedError(message, log_tail=accident.log_tail)
