"""End of all processes of a command's session, and deferral of signals until that is done.

By ``/proc``: psutil does not know sessions.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from launch.system.process_tree import SESSION, end_all, list_running

_TERMINATION_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def end_session(leader: int, *, grace_s: float) -> None:
    """End every process of a session, as `end_all` does.

    mpirun gives its logins and its ranks process groups of their own, but they stay in its session.

    Args:
        leader: Process number of the command that began the session. Wait for it afterwards, or
            another process may have the number by now.
        grace_s: Time in which they may end by themselves, and ranks their workers.
    """
    end_all(
        lambda: {pid for pid, fields in list_running() if int(fields[SESSION]) == leader},
        grace_s=grace_s,
    )


@contextmanager
def defer_signals() -> Iterator[None]:
    """Delay signals that would end this process until after the block, which must be bounded.

    Only in the main thread, which alone can handle signals; in others it does nothing.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or isinstance(signal.getsignal(signal.SIGINT), _Deferral):  # a block around it
        yield
        return
    deferred = _Deferral()
    handlers = {number: signal.getsignal(number) for number in _TERMINATION_SIGNALS}
    try:
        for number, handler in handlers.items():
            if handler is not None:  # else it is of a library in C, and could not be set again
                signal.signal(number, deferred)
        yield
    finally:
        _set_handlers(handlers)
        for sent in deferred.signals:
            signal.raise_signal(sent)


def has_deferred_signal() -> bool:
    """Tell whether a signal waits for the end of a block of `defer_signals` around this."""
    handlers = [signal.getsignal(number) for number in _TERMINATION_SIGNALS]
    is_main = threading.current_thread() is threading.main_thread()
    return is_main and any(isinstance(one, _Deferral) and one.signals for one in handlers)


def _set_handlers(handlers: Mapping[signal.Signals, Any]) -> None:
    try:
        for number, handler in handlers.items():
            if handler is not None:
                signal.signal(number, handler)
    except BaseException:  # of a signal whose handler is there again
        _set_handlers(handlers)
        raise


class _Deferral:
    """Handler of signals, which keeps them."""

    def __init__(self) -> None:
        self.signals: list[int] = []

    def __call__(self, sent: int, _: object) -> None:
        self.signals.append(sent)
