"""Running MPI job: its reports, its log, its end."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from collections import deque
from pathlib import Path

from launch.mpi.mpirun_log import find_lost_host
from launch.mpi.scratch_folder import with_files_in
from launch.reports import Report
from launch.system.process_end import bind_to_parent
from launch.system.process_tree import is_stopped
from launch.system.session import defer_signals, end_session
from launch.system.temporary_folder import TemporaryFolder
from launch.workers.log import BoundedLog
from probes.errors import InvalidDocumentError

_END_POLL_S = 0.05
_READ_BYTES = 1 << 16
_DRAIN_S = 0.2
_END_LIMIT_S = 5.0
_SESSION_GRACE_S = 2.0


class MpiJob:
    """A running mpirun or srun. Use it in a ``with`` block; leaving it ends the job.

    When this process dies, however that happens, the job gets SIGTERM.

    Args:
        command: Of mpirun or srun.
        log: File for what it, and every rank, writes to stderr: its first and its last part. It is
            written during calls that read reports, wait or stop.
    """

    def __init__(self, command: list[str], log: Path) -> None:
        self._log = log
        self._pending_signals: list[int] | None = []
        self._lines: deque[bytes] = deque()
        self._unread = b""
        self._is_over = False
        with contextlib.ExitStack() as opened:
            self._errors = BoundedLog(log)
            opened.callback(self._errors.close)
            self._scratch = TemporaryFolder()
            opened.callback(self._scratch.close)
            self._process = subprocess.Popen(
                bind_to_parent(with_files_in(self._scratch.path, command, os.environ)),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=self._scratch.locks,
                start_new_session=True,
            )
            opened.pop_all()
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._stdout, self._stderr = self._process.stdout, self._process.stderr
        self._open_stderr = [self._stderr]
        """Empty once there can be no more."""

    def __enter__(self) -> MpiJob:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def is_over(self) -> bool:
        """Whether there are no more reports."""
        return self._is_over and not self._lines

    def next_report(self, timeout_s: float) -> Report | None:
        """Wait for the next report of a rank; ``None`` without one in that time.

        Other output is left out.
        """
        deadline = time.monotonic() + timeout_s
        while not self.is_over:
            if self._lines:
                with contextlib.suppress(InvalidDocumentError):
                    report = Report.decode(self._lines.popleft())
                    waiting, self._pending_signals = self._pending_signals, None
                    for number in waiting or ():
                        self._process.send_signal(number)
                    return report
            elif not self._read(deadline):
                return None
        return None

    def _read(self, deadline: float) -> bool:
        """Read stdout; return whether there was anything.

        After mpirun's end there is no more, though processes that it left may have stdout open.
        """
        while True:
            has_ended = self._process.poll() is not None
            timeout_s = max(0.0, deadline - time.monotonic())
            timeout_s = min(timeout_s, _DRAIN_S) if has_ended else timeout_s
            readable, _, _ = select.select([self._stdout, *self._open_stderr], [], [], timeout_s)
            if self._stdout in readable:
                block = os.read(self._stdout.fileno(), _READ_BYTES)
                self._is_over = not block
                *lines, self._unread = (self._unread + block).split(b"\n")
                self._lines.extend(lines)
                return True
            if readable:
                self._log_errors()
            if not readable or time.monotonic() > deadline:
                self._is_over = has_ended
                return False

    def _log_errors(self) -> None:
        if block := os.read(self._stderr.fileno(), _READ_BYTES):
            self._errors.write(block)
        else:
            self._open_stderr.clear()

    def _await_end(self, deadline: float = float("inf")) -> None:
        """Wait until mpirun has ended, and log its stderr meanwhile: a full pipe would block it."""
        while time.monotonic() < deadline:
            if has_ended := self._process.poll() is not None:
                deadline = min(deadline, time.monotonic() + _SESSION_GRACE_S)
            timeout_s = _DRAIN_S if has_ended else _END_POLL_S
            if select.select(self._open_stderr, [], [], timeout_s)[0]:
                self._log_errors()
            elif has_ended:
                return

    def signal(self, number: int) -> None:
        """Send a signal to every rank, such as SIGUSR1, which mpirun passes on.

        It is delayed until the first report of a rank: mpirun without handlers would end by it.
        """
        if self._pending_signals is not None:
            self._pending_signals.append(number)
        else:
            self._process.send_signal(number)

    @property
    def is_stopped(self) -> bool:
        """Whether mpirun is stopped, as by SIGSTOP."""
        return is_stopped(self._process.pid)

    def wait(self) -> int:
        """Wait for the end; give mpirun's exit status, negative for a signal.

        Open MPI 5.0.11 ends with 0 when it has lost a host; that is given as 1.
        """
        self._await_end()
        return self._process.returncode or int(find_lost_host(self.read_errors()) is not None)

    def read_errors(self) -> str:
        """Give what was written to stderr so far; nothing where the user has removed the log."""
        with contextlib.suppress(FileNotFoundError):
            # mpirun ends what it writes with a zero byte.
            return self._log.read_text(errors="replace").replace("\0", "")
        return ""

    def stop(self) -> None:
        """End the job, in bounded time: mpirun ends its ranks, and ranks end their workers.

        Where mpirun cannot, because it hangs or a host does not answer, it is killed. The daemons
        of the other hosts then lose it and end their ranks. A signal that would end this process
        is delayed until then: nothing may be left.
        """
        with defer_signals():
            self._end()
            if not self._stderr.closed:
                self._await_end(time.monotonic() + _DRAIN_S)
                self._stdout.close()
                self._stderr.close()
                self._errors.close()
                self._open_stderr.clear()

    def _end(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            self._await_end(time.monotonic() + _END_LIMIT_S)
            self._process.kill()
        self._process.wait()
        end_session(self._process.pid, grace_s=_SESSION_GRACE_S)
        self._scratch.close()
