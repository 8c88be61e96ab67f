"""Ctrl-C at a chosen moment of a piece of work."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable


def run_with_ctrl_c(work: Callable[[], object], moment: int) -> bool:
    """Run some work, and press Ctrl-C at a moment, counted in its events of tracing.

    Returns:
        Whether it has so many, where the Ctrl-C is not raised.
    """
    seen = 0

    def trace(*_: object) -> object:
        nonlocal seen
        seen += 1
        if seen == moment:
            sys.settrace(None)
            signal.raise_signal(signal.SIGINT)
        return trace

    usual = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(usual)
    return seen >= moment
