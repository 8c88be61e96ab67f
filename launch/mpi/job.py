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

from launch.held_signals import held_signals
from launch.mpi.lost_host import find_lost_host
from launch.mpi.scratch import MpirunScratch
from launch.process_end import bound_command, is_stopped
from launch.session import end_session
from launch.workers.log import BoundedLog
from launch.workers.reports import Report

_LOOK_S = 1.0
_END_LOOK_S = 0.05
_BLOCK_BYTES = 1 << 16
_LAST_WORDS_S = 0.2
_END_LIMIT_S = 5.0
_REST_LIMIT_S = 2.0


class MpiJob:
    """A running mpirun or srun. Use it in a ``with`` block; leaving it ends the job.

    When this process dies, however that happens, the job gets SIGTERM.

    Args:
        command: Of mpirun or srun.
        log: File for what it, and every rank, writes to stderr: its first and its last part. It is
            written while the job is listened to, waited for, or stopped.
    """

    def __init__(self, command: list[str], log: Path) -> None:
        self._log = log
        self._errors = BoundedLog(log)
        self._waiting_signals: list[int] | None = []
        self._lines: deque[bytes] = deque()
        self._unread = b""
        self._is_over = False
        self._scratch = MpirunScratch(os.environ)
        try:
            self._process = subprocess.Popen(
                bound_command(self._scratch.wrap(command)),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except BaseException:
            self._errors.close()
            self._scratch.close()
            raise
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._stdout, self._stderr = self._process.stdout, self._process.stderr
        self._spoken_errors = [self._stderr]
        """Empty once there can be no more."""

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
            elif not self._read(give_up):
                return None
        return None

    def _read(self, give_up: float) -> bool:
        """Read what has been said on stdout; tell whether there was anything.

        Once mpirun is gone no more is said, though what it has left may hold its stdout open.
        """
        while True:
            has_ended = self._has_ended()
            timeout_s = max(0.0, give_up - time.monotonic())
            timeout_s = min(timeout_s, _LAST_WORDS_S) if has_ended else timeout_s
            speaks, _, _ = select.select([self._stdout, *self._spoken_errors], [], [], timeout_s)
            if self._stdout in speaks:
                block = os.read(self._stdout.fileno(), _BLOCK_BYTES)
                self._is_over = not block
                *lines, self._unread = (self._unread + block).split(b"\n")
                self._lines.extend(lines)
                return True
            if speaks:
                self._keep_errors()
            if not speaks or time.monotonic() > give_up:
                self._is_over = has_ended
                return False

    def _keep_errors(self) -> None:
        if block := os.read(self._stderr.fileno(), _BLOCK_BYTES):
            self._errors.write(block)
        else:
            self._spoken_errors.clear()

    def _has_ended(self) -> bool:
        return self._process.poll() is not None

    def _await_end(self, give_up: float = float("inf")) -> None:
        """Wait until mpirun is gone, and keep its last words.

        They are read meanwhile: with a pipe that is full it could not end.
        """
        while time.monotonic() < give_up:
            if has_ended := self._has_ended():
                give_up = min(give_up, time.monotonic() + _REST_LIMIT_S)
            timeout_s = _LAST_WORDS_S if has_ended else _END_LOOK_S
            if select.select(self._spoken_errors, [], [], timeout_s)[0]:
                self._keep_errors()
            elif has_ended:
                return

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

    @property
    def is_stopped(self) -> bool:
        """Whether mpirun stands still because it was told to."""
        return is_stopped(self._process.pid)

    def wait(self) -> int:
        """Wait for the end; give mpirun's exit status, negative for a signal.

        Open MPI 5.0.11 ends with 0 when it has lost a host; that is given as 1.
        """
        self._await_end()
        return self._process.returncode or int(self.find_lost_host() is not None)

    def find_lost_host(self) -> str | None:
        """Give the host that stopped answering, where mpirun has noticed one."""
        return find_lost_host(self._log.read_text(errors="replace"))

    def stop(self) -> None:
        """End the job, in bounded time: mpirun ends its ranks, and ranks end their workers.

        Where mpirun cannot, because it hangs or a host does not answer, it is killed. The daemons
        of the other hosts then miss it and end their ranks. A signal that would end this process
        waits until that is done: nothing may be left.
        """
        with held_signals():
            self._end()
            if not self._stderr.closed:
                self._await_end(time.monotonic() + _LAST_WORDS_S)
                self._stdout.close()
                self._stderr.close()
                self._errors.close()
                self._spoken_errors.clear()

    def _end(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            self._await_end(time.monotonic() + _END_LIMIT_S)
            self._process.kill()
        self._process.wait()
        end_session(self._process.pid, patience_s=_REST_LIMIT_S)
        self._scratch.close()
