"""Channel to a program of ours, here or on another host: lines go there, its reports come back."""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from typing import IO

from launch.reports import Report
from launch.system.session import end_session
from probes import codec
from probes.errors import InvalidDocumentError

_READ_BYTES = 1 << 16
_END_LIMIT_S = 12.0
_WORDS_LIMIT_S = 1.0


class ProgramChannel:
    """A program that ends when its stdin does, and what it reports on stdout.

    Args:
        name: Of its host.
        command: Starts it here, or by ssh there.
        request: The first line of its stdin.

    Attributes:
        name: Of its host.
        stdout: Readable, for `select`, when there is something to `read`.
        reports: What it has reported and nobody has taken yet.
        is_over: Whether there is no more to read.
        was_killed: Whether it has not ended in order; known when it is closed.
    """

    def __init__(self, name: str, command: Sequence[str], request: object) -> None:
        self.name = name
        self.reports: deque[Report] = deque()
        self.is_over = False
        self.was_killed = True
        self._unread = b""
        self._lock = threading.Lock()
        self._end_by = 0.0
        with ExitStack() as opened:
            self._errors: IO[bytes] = opened.enter_context(tempfile.TemporaryFile())
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                bufsize=0,
                start_new_session=True,  # Ctrl-C is for us, and we tell it
            )
            opened.pop_all()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self.stdout = self._process.stdin, self._process.stdout
        self.send(codec.encode(request) + b"\n")

    def send(self, line: bytes) -> None:
        """Send a line; several threads may."""
        with self._lock, suppress(BrokenPipeError, ValueError):  # reading says why
            left = memoryview(line)
            while left:
                left = left[self._stdin.write(left) or 0 :]

    def read(self) -> None:
        """Read what it has reported."""
        block = os.read(self.stdout.fileno(), _READ_BYTES)
        self.is_over = not block
        *lines, self._unread = (self._unread + block).split(b"\n")
        for line in lines:
            with suppress(InvalidDocumentError):  # a login may write lines of its own
                self.reports.append(Report.decode(line))

    def take(self) -> Iterator[Report]:
        """Take the reports that were read."""
        while self.reports:
            yield self.reports.popleft()

    def read_errors(self) -> str:
        """Read what it wrote to stderr, once there is no more to read."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_WORDS_LIMIT_S)
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace").strip()

    def hang_up(self) -> None:
        """End its stdin."""
        self._end_by = time.monotonic() + _END_LIMIT_S
        with self._lock, suppress(OSError):
            self._stdin.close()

    def close(self) -> None:
        """Wait for its end, for a bounded time after `hang_up`: others end side by side with it."""
        self.stdout.close()  # or one that still writes could not end
        try:
            self.was_killed = self._process.wait(self._end_by - time.monotonic()) != 0
        except subprocess.TimeoutExpired:
            self._process.kill()
            end_session(self._process.pid, grace_s=0.0)
            self._process.wait()  # only now may its number become that of another
        self._errors.close()
