"""Signals that are for a script while it runs: who started it hears them, and passes them on."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_FOR_THE_SCRIPT = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


@contextmanager
def passing_on(pass_on: Callable[[int], object]) -> Iterator[None]:
    """Give each signal that is for a script to a function while the block runs.

    Under nohup, by which SIGHUP is ignored, there is none: who closes a terminal means no script.
    """
    is_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    heard = [one for one in _FOR_THE_SCRIPT if one != signal.SIGHUP or not is_ignored]
    usual = {one: signal.signal(one, lambda number, _: pass_on(number)) for one in heard}
    try:
        yield
    finally:
        for number, handler in usual.items():
            signal.signal(number, handler)
