"""This machine, for one measurement at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from launch.reports import Noted, Warned, Working
from launch.system.machine_lock import Occupant, timing_alone
from planner.cancellation import Cancellation
from planner.trials.reports import Listener


@contextmanager
def machine_alone(listener: Listener, cancellation: Cancellation, *, waits: bool) -> Iterator[None]:
    """Let nothing else be timed on this machine in this block.

    Args:
        listener: Receives for whom this waits.
        cancellation: Ends the waiting.
        waits: Whether to wait while the machine is in use.

    Raises:
        MachineBusyError: It is, and ``waits`` is false; or this runs in a script that is timed.
        CancelledError: The end was asked for while this waited.
    """

    def on_wait(message: str) -> None:
        listener(Noted(message=message))
        listener(Working(what="waiting until nothing else is timed here"))

    with timing_alone(
        Occupant.of_this_process(),
        waits=waits,
        on_wait=on_wait,
        on_trouble=lambda message: listener(Warned(message=message)),
        pause=cancellation.wait,
    ):
        yield
