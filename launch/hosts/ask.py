"""What do many hosts answer, asked at the same time? Bounded in time, whatever one of them does."""

from __future__ import annotations

import os
import subprocess
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from tempfile import TemporaryFile
from typing import IO

from launch.process_end import bound_command, kill_group
from launch.session import end_session

AT_ONCE = 64
"""Programs that run at the same time; the others wait for one of them to end."""

_MAX_BYTES = 4 * 2**20
_LOOK_EVERY_S = 0.02
_END_LIMIT_S = 5.0
_REST_LIMIT_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came of one program."""

    code: int | None
    """Its exit status, negative for a signal; ``None`` where it was ended from here."""

    out: str
    err: str

    began_s: float
    """By this machine's clock, as `time.time` gives it."""

    ended_s: float

    @property
    def took_s(self) -> float:
        """Seconds from start to end."""
        return max(self.ended_s - self.began_s, 0.0)


OnAnswer = Callable[[int, Answer], None]
"""Hears the number of the command, and what came of it."""


def ask_all(
    commands: Sequence[Sequence[str]], *, limit_s: float, on_answer: OnAnswer | None = None
) -> list[Answer]:
    """Run programs side by side and give what each of them wrote, in the order of the commands.

    None of them outlives this call, nor this process.

    Args:
        commands: Argument lists; no shell reads them.
        limit_s: Seconds after which a program is ended.
        on_answer: Hears of each end as it comes.
    """
    waiting = deque(enumerate(commands))
    running: dict[int, _Asked] = {}
    answers: dict[int, Answer] = {}
    try:
        while waiting or running:
            while waiting and len(running) < AT_ONCE:
                number, command = waiting.popleft()
                running[number] = _Asked(command, limit_s)
            for number, asked in list(running.items()):
                if (answer := asked.find_answer()) is not None:
                    answers[number] = answer
                    running.pop(number).close()
                    if on_answer is not None:
                        on_answer(number, answer)
            if running:
                time.sleep(_LOOK_EVERY_S)
    finally:
        for asked in running.values():
            asked.tell_to_end()  # all of them, before one is waited for
        for asked in running.values():
            asked.close()
    return [answers[number] for number in range(len(commands))]


class _Asked:
    """A running program, whose output goes into files.

    Not into pipes: what a login leaves behind on the other side can hold them open for ever.
    """

    def __init__(self, command: Sequence[str], limit_s: float) -> None:
        self._files = ExitStack()
        self._out: IO[bytes] = self._files.enter_context(_spool())
        self._err: IO[bytes] = self._files.enter_context(_spool())
        self._is_told_to_end = False
        self._began_s = time.time()
        self._deadline_s = time.monotonic() + limit_s
        self._process = subprocess.Popen(
            # env: a program that is not there is told in one line, and by its exit code.
            bound_command(["/usr/bin/env", *command]),
            stdin=subprocess.DEVNULL,
            stdout=self._out,
            stderr=self._err,
            start_new_session=True,
        )

    def find_answer(self) -> Answer | None:
        """Give what the program wrote, once it has ended or must not go on."""
        code = self._process.poll()
        if code is None and not self._is_over():
            return None
        ended_s = time.time()
        return Answer(
            code=code,
            out=_text(self._out),
            err=_text(self._err),
            began_s=self._began_s,
            ended_s=ended_s,
        )

    def tell_to_end(self) -> None:
        """Ask the program to end, once: mpirun then ends its ranks on every host."""
        if self._process.poll() is None and not self._is_told_to_end:
            self._is_told_to_end = True
            self._process.terminate()

    def close(self) -> None:
        """End the program, if it still runs, with all that it started."""
        self.tell_to_end()
        if self._is_told_to_end:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_END_LIMIT_S)
            kill_group(self._process.pid)
            self._process.wait()
            end_session(self._process.pid, patience_s=_REST_LIMIT_S)
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
