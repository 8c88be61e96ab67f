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

_PAUSE_S = 0.005
"""Time that a writer which comes again at once lets those who wait wake up in: the kernel gives a
free lock to whoever asks first."""

_left_at = -_PAUSE_S
_num_stuck = 0
"""Threads of this process that wait for the lock of a program that stands still. While there is
one, others do without the queue, so that there are no more of them."""


@contextmanager
def queued(folder: Path, timeout_s: float) -> Iterator[None]:
    """Wait for one's turn to write into a folder, though no longer than ``timeout_s``."""
    global _left_at
    if _num_stuck:
        yield
        return
    time.sleep(max(0.0, _PAUSE_S - (time.monotonic() - _left_at)))
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        yield
        return
    turn = _Turn(descriptor)
    try:
        turn.wait(timeout_s)
        yield
    finally:
        turn.end()
        _left_at = time.monotonic()


class _Turn:
    """A place in the queue.

    Args:
        descriptor: Of the folder, which this closes.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._waiting: threading.Thread | None = None

    def wait(self, timeout_s: float) -> None:
        """Wait for the lock. It cannot be waited for with a time limit, so a thread does."""
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._waiting = threading.Thread(target=self._lock, daemon=True)
            self._waiting.start()
            self._waiting.join(timeout_s)
        except OSError:
            return

    def end(self) -> None:
        """Let the next one have its turn. A thread that still waits does so when it is there."""
        global _num_stuck
        if self._waiting is None or not self._waiting.is_alive():
            self._leave()
            return
        _num_stuck += 1
        threading.Thread(target=self._end_later, daemon=True).start()

    def _lock(self) -> None:
        with suppress(OSError):
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)

    def _end_later(self) -> None:
        global _num_stuck
        assert self._waiting is not None
        self._waiting.join()
        self._leave()
        _num_stuck -= 1

    def _leave(self) -> None:
        with suppress(OSError):  # closing alone would leave it to processes forked meanwhile
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        os.close(self._descriptor)
