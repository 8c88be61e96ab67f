"""What becomes of a training that an accident has ended? It goes on, where the user wants that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from launch.checkpoints.folder import list_checkpoints
from launch.errors import LaunchError
from planner.errors import TrainingFailedError, UsageError

if TYPE_CHECKING:
    from launch.hosts.line import Host
    from planner.job_making import LaunchRequest

Attempt = Callable[["LaunchRequest", Sequence["Host"] | None], None]
"""Trains as the user wants it, on these hosts; on the user's own where that is ``None``."""


def run_with_restarts(
    request: LaunchRequest,
    attempt: Attempt,
    find_hosts: Callable[[], Sequence[Host]],
    warn: Callable[[str], None],
) -> None:
    """Train; go on from the last checkpoint after an accident, on the hosts that still answer.

    An error of the user's own code would only come again, so it is none.

    Args:
        request: What the user wants.
        attempt: Trains.
        find_hosts: Gives the hosts that can train now.
        warn: Takes what the user should hear.

    Raises:
        UsageError: There would be nothing to go on from.
        TrainingFailedError: The training failed once too often, or not by an accident.
    """
    if request.max_restarts and request.checkpoint is None:
        raise UsageError(
            f"--max-restarts {request.max_restarts} and no --checkpoint: name a folder"
        )
    hosts = None
    accident: TrainingFailedError | None = None
    for left in range(request.max_restarts, -1, -1):
        try:
            attempt(request, hosts)
        except TrainingFailedError as error:
            if left == 0 or not error.is_accident:
                raise
            accident = error
            assert request.checkpoint is not None
            has_any = bool(list_checkpoints(request.checkpoint))
            whence = "from the last checkpoint" if has_any else "from the start"
            warn(f"{error}: going on {whence}, {left} of {request.max_restarts} restarts left")
            hosts = find_hosts()
            request = replace(request, resumes=has_any)
        except LaunchError as error:
            if accident is None:
                raise
            message = f"{accident}; and it cannot go on: {error}"
            raise TrainingFailedError(message, log_tail=accident.log_tail) from error
        else:
            return
