"""Commands run in parallel, with a time limit."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from tempfile import TemporaryFile
from typing import IO

from launch.system.process_end import bind_to_parent, kill_group
from launch.system.process_tree import has_ended, send_signal
from launch.system.session import end_session

MAX_RUNNING = 64
"""Programs that run at the same time; the others wait for one of them to end."""

_MAX_BYTES = 4 * 2**20
_POLL_S = 0.02
_END_LIMIT_S = 5.0
_SESSION_GRACE_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """Result of one program."""

    code: int | None
    """Its exit status, negative for a signal; ``None`` where it was ended by us."""

    out: str
    err: str

    began_s: float
    """By this machine's clock, as `time.time` gives it."""

    ended_s: float

    @property
    def elapsed_s(self) -> float:
        """Seconds from start to end."""
        return max(self.ended_s - self.began_s, 0.0)


OnResult = Callable[[int, CommandResult], None]
"""Receives the number of the command, and its result."""


def run_all(
    commands: Sequence[Sequence[str]],
    *,
    limit_s: float,
    on_result: OnResult | None = None,
    on_poll: Callable[[], None] = lambda: None,
) -> list[CommandResult]:
    """Run programs in parallel; return what each of them wrote, in the order of the commands.

    None of them outlives this call, nor this process.

    Args:
        commands: Argument lists; no shell reads them.
        limit_s: Seconds after which a program is ended.
        on_poll: Called many times a second. An exception from it ends all programs.
        on_result: Called at each end.
    """
    waiting = deque(enumerate(commands))
    running: dict[int, _Child] = {}
    results: dict[int, CommandResult] = {}
    try:
        while waiting or running:
            while waiting and len(running) < MAX_RUNNING:
                number, command = waiting.popleft()
                running[number] = _Child(command, limit_s)
            for number, child in list(running.items()):
                if (result := child.find_result()) is not None:
                    results[number] = result
                    running.pop(number).close()
                    if on_result is not None:
                        on_result(number, result)
            if running:
                on_poll()
                time.sleep(_POLL_S)
    finally:
        for child in running.values():
            child.terminate()  # all of them, before one is waited for
        for child in running.values():
            child.close()
    return [results[number] for number in range(len(commands))]


class _Child:
    """A running program, whose output goes into files.

    Not into pipes: processes that a login leaves on the other host can keep them open for ever.
    """

    def __init__(self, command: Sequence[str], limit_s: float) -> None:
        self._files = ExitStack()
        self._out: IO[bytes] = self._files.enter_context(_spool())
        self._err: IO[bytes] = self._files.enter_context(_spool())
        self._is_terminated = False
        self._began_s = time.time()
        self._deadline_s = time.monotonic() + limit_s
        self._process = subprocess.Popen(
            # env reports a missing program in one line, and by its exit code.
            bind_to_parent(["/usr/bin/env", *command]),
            stdin=subprocess.DEVNULL,
            stdout=self._out,
            stderr=self._err,
            start_new_session=True,
        )

    def find_result(self) -> CommandResult | None:
        """Return the result once the program has ended, or exceeds a limit; else ``None``."""
        code = self._process.poll()
        if code is None and not self._is_over():
            return None
        ended_s = time.time()
        return CommandResult(
            code=code,
            out=_text(self._out),
            err=_text(self._err),
            began_s=self._began_s,
            ended_s=ended_s,
        )

    def terminate(self) -> None:
        """Send the program SIGTERM, once: mpirun then ends its ranks on every host."""
        if not self._is_terminated and self._process.poll() is None:
            self._is_terminated = True
            send_signal([self._process.pid], signal.SIGTERM)

    def close(self) -> None:
        """End the program, if it still runs, with all that it started."""
        self.terminate()
        if self._is_terminated:
            give_up = time.monotonic() + _END_LIMIT_S
            while not has_ended(self._process.pid) and time.monotonic() < give_up:
                time.sleep(_POLL_S)
            kill_group(self._process.pid)
            end_session(self._process.pid, grace_s=_SESSION_GRACE_S)
            self._process.wait()  # only now may its number become that of another
        self._files.close()

    def _is_over(self) -> bool:
        sizes = (os.fstat(file.fileno()).st_size for file in (self._out, self._err))
        return time.monotonic() > self._deadline_s or max(sizes) > _MAX_BYTES


def _spool() -> IO[bytes]:
    return TemporaryFile()


def _text(file: IO[bytes]) -> str:
    # The program writes at the end of the same open file, wherever that is; this reads apart.
    with suppress(OSError):
        return os.pread(file.fileno(), _MAX_BYTES, 0).decode(errors="replace")
    return ""
