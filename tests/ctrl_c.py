"""Ctrl-C at a chosen moment of a piece of work."""

from __future__ import annotations

import inspect
import signal
import sys
from collections.abc import Callable
from types import FrameType


def run_with_ctrl_c(work: Callable[[], object], moment: int) -> bool:
    """Run some work, and press Ctrl-C at a moment, counted in its events of tracing.

    Returns:
        Whether it has so many, where the Ctrl-C is not raised.
    """
    seen = 0

    def trace(frame: FrameType, event: str, _: object) -> object:
        nonlocal seen
        # Raised while a generator yields, an error would end it without its `finally`: a signal
        # comes before or after.
        if event == "return" and frame.f_code.co_flags & inspect.CO_GENERATOR:
            return trace
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
