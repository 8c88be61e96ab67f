"""Cancellation of a search or a job, from any thread."""

from __future__ import annotations

import signal
import threading

from planner.errors import CancelledError

POLL_INTERVAL_S = 1.0
"""Longest time in which who waits for workers does not look whether the end was asked for."""


class Cancellation:
    """A request to end a search or a job. It serves one call and can be made in any thread.

    The first `cancel` lets a training end after the step that it makes, with a checkpoint where
    such are written. What has no steps, and a second `cancel`, end at once. What was measured by
    then stays in the database.

    Attributes:
        is_orderly: Whether the running job has made a step, so that it would end after the next.
    """

    def __init__(self) -> None:
        self._requested = threading.Event()
        self._wants_checkpoint = threading.Event()
        self._signal = int(signal.SIGINT)
        self.is_orderly = False
        self.is_urgent = False

    def cancel(self, number: int = signal.SIGINT) -> None:
        """Ask for the end.

        Args:
            number: The signal that asks for it, where one does: the program ends as by it.
        """
        self.is_urgent = self._requested.is_set()
        self._signal = number
        self._requested.set()

    @property
    def is_requested(self) -> bool:
        """Whether the end was asked for."""
        return self._requested.is_set()

    def request_checkpoint(self) -> None:
        """Ask for a checkpoint after this step; the training continues."""
        self._wants_checkpoint.set()

    def take_checkpoint_request(self) -> bool:
        """Tell whether a checkpoint was asked for since the last call."""
        was_set = self._wants_checkpoint.is_set()
        self._wants_checkpoint.clear()
        return was_set

    def make_error(self) -> CancelledError:
        """Make the error of what ends because of this."""
        return CancelledError(self._signal)

    def check(self) -> None:
        """Do nothing unless the end was asked for.

        Raises:
            CancelledError: It was.
        """
        if self.is_requested:
            raise self.make_error()

    def wait(self, time_s: float) -> None:
        """Wait for some seconds.

        Raises:
            CancelledError: The end was asked for meanwhile.
        """
        self._requested.wait(time_s)
        self.check()
