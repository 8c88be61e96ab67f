"""What becomes of a signal while something is cleared away? It waits until that is done."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def held_signals() -> Iterator[None]:
    """Let signals that ask for an end have their effect after the block, which must be bounded.

    Only in the main thread, which alone can take signals; in others it does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    held: list[int] = []
    usual = {number: signal.signal(number, lambda sent, _: held.append(sent)) for number in _ENDS}
    try:
        yield
    finally:
        for number, handler in usual.items():
            signal.signal(number, handler)
        for sent in held:
            signal.raise_signal(sent)
