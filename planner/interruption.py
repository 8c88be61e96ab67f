"""What do signals mean while a job runs? One lets it end in order, a second one at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from launch.mpi.job import MpiJob
from launch.wishes import CHECKPOINT, STOP
from launch.workers.reports import Report, Warned

_ENDS = (signal.SIGINT, signal.SIGTERM)
_HOW_TO_HURRY = {
    signal.SIGINT: "stopping after this step: Ctrl-C again ends at once",
    signal.SIGTERM: "stopping after this step: SIGTERM again ends at once",
}


class Interruption:
    """Takes signals for a job. Use it in a ``with`` block.

    SIGINT and SIGTERM let the job end after the step that it is in, with a checkpoint where such
    are kept; SIGUSR1 asks for a checkpoint. A second signal, and any that comes before the first
    step, has its usual effect.

    Args:
        job: The job.
        say: Takes what the user should hear.
    """

    def __init__(self, job: MpiJob, say: Callable[[Report], None]) -> None:
        self._job = job
        self._say = say
        self._usual: dict[int, Any] = {}
        self._number: int | None = None
        self.has_begun = False
        """Whether a step has been made."""

    def __enter__(self) -> Interruption:
        if _is_main_thread():
            for number in (*_ENDS, CHECKPOINT):
                self._usual[number] = signal.signal(number, self._take)
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    @property
    def is_pending(self) -> bool:
        """Whether a signal has asked for the end of the job, which it has not had by itself."""
        return self._number is not None

    def note(self, number: int) -> None:
        """Take note that the ranks themselves were asked to end, by this signal."""
        self._number = self._number or number

    def give_effect(self) -> None:
        """Let a signal that the job has ended after have its usual effect now, if there was one."""
        if self._number is not None:
            self._restore()
            signal.raise_signal(self._number)

    def _restore(self) -> None:
        while self._usual:
            signal.signal(*self._usual.popitem())

    def _take(self, number: int, _: FrameType | None) -> None:
        if number == CHECKPOINT:
            self._job.signal(CHECKPOINT)
        elif self.has_begun and self._number is None:
            self._number = number
            self._job.signal(STOP)
            self._say(Warned(message=_HOW_TO_HURRY[signal.Signals(number)]))
        else:
            self._restore()
            signal.raise_signal(number)


@contextmanager
def survive_checkpoint_signals() -> Iterator[None]:
    """Let SIGUSR1, which would end this process, do nothing where no job is running.

    By a handler of our own: children would inherit that it is ignored.
    """
    if not _is_main_thread():
        yield
        return
    usual = signal.signal(CHECKPOINT, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(CHECKPOINT, usual)


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
