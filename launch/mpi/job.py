"""What becomes of an mpirun that was started? It speaks, ends by itself, or is ended."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from launch.mpi.lost_host import find_lost_host
from launch.mpi.session import end_session
from launch.process_end import bound_command
from launch.workers.reports import Report

_LOOK_S = 1.0
_LAST_WORDS_S = 0.2
_END_LIMIT_S = 5.0
_REST_LIMIT_S = 2.0


class MpiJob:
    """A running mpirun or srun. Use it in a ``with`` block; leaving it ends the job.

    When this process dies, however that happens, the job gets SIGTERM.
    """

    def __init__(self, command: list[str], log: Path) -> None:
        self._log = log
        self._waiting_signals: list[int] | None = []
        self._lines: deque[bytes] = deque()
        self._unread = b""
        self._is_over = False
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(descriptor, "wb") as errors:
            self._process = subprocess.Popen(
                bound_command(command),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )

    def __enter__(self) -> MpiJob:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def reports(self) -> Iterator[Report]:
        """Give what the ranks say, until the job ends. Other output of theirs is left out."""
        while not self.is_over:
            if (report := self.next_report(_LOOK_S)) is not None:
                yield report

    @property
    def is_over(self) -> bool:
        """Whether there is nothing more to hear."""
        return self._is_over and not self._lines

    def next_report(self, timeout_s: float) -> Report | None:
        """Wait for what a rank says next; ``None`` where it was nothing in that time."""
        give_up = time.monotonic() + timeout_s
        while not self.is_over:
            if self._lines:
                with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
                    report = Report.decode(self._lines.popleft())
                    self._send_waiting_signals()
                    return report
            elif not self._read(max(0.0, give_up - time.monotonic())):
                return None
        return None

    def _read(self, timeout_s: float) -> bool:
        """Read what has been said; tell whether there was anything.

        Once mpirun is gone no more is said, though what it has left may hold its stdout open.
        """
        assert self._process.stdout is not None
        has_ended = self._process.poll() is not None
        timeout_s = min(timeout_s, _LAST_WORDS_S) if has_ended else timeout_s
        if not select.select([self._process.stdout], [], [], timeout_s)[0]:
            self._is_over = has_ended
            return False
        block = os.read(self._process.stdout.fileno(), 1 << 16)
        self._is_over = not block
        *lines, self._unread = (self._unread + block).split(b"\n")
        self._lines.extend(lines)
        return True

    def signal(self, number: int) -> None:
        """Send a signal to every rank, such as SIGUSR1, which mpirun passes on.

        It waits until a rank has spoken: before, it would end mpirun, which does not listen yet.
        """
        if self._waiting_signals is not None:
            self._waiting_signals.append(number)
        else:
            self._process.send_signal(number)

    def _send_waiting_signals(self) -> None:
        waiting, self._waiting_signals = self._waiting_signals, None
        for number in waiting or ():
            self._process.send_signal(number)

    def wait(self) -> int:
        """Wait for the end; give mpirun's exit status, negative for a signal.

        Open MPI 5.0.11 ends with 0 when it has lost a host; that is given as 1.
        """
        return self._process.wait() or int(self.find_lost_host() is not None)

    def find_lost_host(self) -> str | None:
        """Give the host that stopped answering, where mpirun has noticed one."""
        return find_lost_host(self._log.read_text(errors="replace"))

    def stop(self) -> None:
        """End the job, in bounded time: mpirun ends its ranks, and ranks end their workers.

        Where mpirun cannot, because it hangs or a host does not answer, it is killed. The daemons
        of the other hosts then miss it and end their ranks.
        """
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_END_LIMIT_S)
            self._process.kill()
        self._process.wait()
        end_session(self._process.pid, patience_s=_REST_LIMIT_S)
        if self._process.stdout is not None:
            self._process.stdout.close()
