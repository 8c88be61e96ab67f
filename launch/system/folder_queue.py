"""Queue of the programs that want to write a database file, in the order in which they came.

SQLite's own wait for its lock asks less and less often: of many writers the latest comes first, and
one that has waited for long waits on. The kernel keeps those that wait for ``flock`` in order. What
is locked is the folder, since closing the database's file anywhere in a process would drop SQLite's
own locks on it (https://www.sqlite.org/howtocorrupt.html, 2.2). The queue is only for fairness:
where it cannot be had, as on some network file systems, SQLite's lock alone decides.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from launch.system.session import has_deferred_signal

_PAUSE_S = 0.005
"""Time that a writer which comes again at once lets those who wait wake up in: the kernel gives a
free lock to whoever asks first."""

_LOOK_EVERY_S = 0.5

_left_at = -_PAUSE_S
_stuck: _Turn | None = None
"""Turn that is over and still waits for the lock of a program that stands still. While there is
one, others do without the queue, so that no more threads wait."""


@contextmanager
def queued(folder: Path, timeout_s: float) -> Iterator[None]:
    """Wait for one's turn to write into a folder, though no longer than ``timeout_s``.

    A Ctrl-C ends the wait, also one that is deferred.
    """
    global _left_at
    if _stuck is not None and _stuck.is_waiting():
        yield
        return
    time.sleep(max(0.0, _PAUSE_S - (time.monotonic() - _left_at)))
    turn = _Turn()
    try:
        try:
            turn.wait(folder, timeout_s)
            yield
        finally:
            turn.end()
            _left_at = time.monotonic()
    finally:
        turn.end()  # again, where a Ctrl-C came in the midst of it


class _Turn:
    """A place in the queue. `end` may be called again."""

    def __init__(self) -> None:
        self._descriptor: int | None = None
        self._waiting: threading.Thread | None = None
        self._ending: threading.Thread | None = None

    def is_waiting(self) -> bool:
        """Whether another program has the turn still."""
        # A thread is not alive in a process that was forked meanwhile.
        return self._waiting is not None and self._waiting.is_alive()

    def wait(self, folder: Path, timeout_s: float) -> None:
        """Wait for the lock. It cannot be waited for with a time limit, so a thread does."""
        try:
            # Kept before it is locked: at no moment can a Ctrl-C leave a lock that nothing ends.
            self._descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._waiting = threading.Thread(target=self._lock, daemon=True)
            self._waiting.start()
            give_up = time.monotonic() + timeout_s
            while self._waiting.is_alive() and not has_deferred_signal():
                if (left_s := give_up - time.monotonic()) <= 0:
                    break
                self._waiting.join(min(left_s, _LOOK_EVERY_S))
        except OSError:
            return

    def end(self) -> None:
        """Let the next one have its turn. A thread that still waits does so when it is there."""
        global _stuck
        if not self.is_waiting():
            self._leave()
            return
        _stuck = self
        if self._ending is None:
            self._ending = threading.Thread(target=self._end_later, daemon=True)
            self._ending.start()

    def _lock(self) -> None:
        assert self._descriptor is not None
        with suppress(OSError):
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)

    def _end_later(self) -> None:
        assert self._waiting is not None
        self._waiting.join()
        self._leave()

    def _leave(self) -> None:
        if self._descriptor is None:
            return
        with suppress(OSError):  # closing alone would leave it to processes forked meanwhile
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        descriptor, self._descriptor = self._descriptor, None
        os.close(descriptor)
