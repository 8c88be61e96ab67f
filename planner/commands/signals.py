"""Signals that cancel a launch: the first one in order, a second one at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from launch.rank.control_signals import CHECKPOINT
from planner.cancellation import Cancellation

_ENDS = (signal.SIGINT, signal.SIGTERM)
_SECOND_SIGNAL_HINTS = {
    signal.SIGINT: "stopping after this step: Ctrl-C again ends at once",
    signal.SIGTERM: "stopping after this step: SIGTERM again ends at once",
}


@contextmanager
def cancel_on_signals(warn: Callable[[str], None]) -> Iterator[Cancellation]:
    """Give a cancellation that signals act on, while the block runs in the main thread.

    SIGINT and SIGTERM let a training end after the step that it makes, with a checkpoint where
    such are written; SIGUSR1 asks for a checkpoint. A second signal, and any that comes while no
    training makes steps, has its usual effect; but SIGUSR1, which would end this process, has
    none. It is handled and not ignored, because children would inherit that it is ignored. A signal
    that was ignored at the start, as a shell without job control has SIGINT ignored for what it
    starts with ``&``, has no usual effect: it cancels. ``warn`` takes the hint what a second one
    does.
    """
    cancellation, usual = Cancellation(), dict[int, Any]()

    def restore() -> None:
        while usual:
            signal.signal(*usual.popitem())

    def handle(number: int, _: FrameType | None) -> None:
        if number == CHECKPOINT:
            cancellation.request_checkpoint()
        elif cancellation.is_orderly and not cancellation.is_requested:
            cancellation.cancel(number)
            warn(_SECOND_SIGNAL_HINTS[signal.Signals(number)])
        elif usual.get(number) is signal.SIG_IGN:
            cancellation.cancel(number)
        else:
            restore()
            signal.raise_signal(number)

    if threading.current_thread() is threading.main_thread():
        for number in (*_ENDS, CHECKPOINT):
            usual[number] = signal.signal(number, handle)
    try:
        yield cancellation
    finally:
        restore()
