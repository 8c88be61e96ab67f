"""Script process: a program of the user's under its supervisor, its output, and the end of all."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from launch.errors import ScriptFailedError
from launch.scripts.program import PYTHON
from launch.scripts.supervisor import GRACE_S, INTERRUPT_S, ScriptRequest
from launch.scripts.working_folder import WorkingFolder
from launch.system.process_end import explain_exit
from launch.system.process_tree import end_all, find_descendants, find_marked, send_signal
from launch.system.session import defer_signals
from launch.workers.log import find_cause, tells_out_of_memory
from probes import codec
from probes.memory import oom_kill_count

_TAIL_BYTES = 1 << 16
_READ_BYTES = 1 << 18
_PIPE_BYTES = 1 << 20
_START_LIMIT_S = 60.0
_GIVE_UP_S = 8.0
_FOLDER_VARIABLE = "TMPDIR"
_FRAME = re.compile(r'^ *File "(.+)", line (\d+)', re.MULTILINE)
_LIBRARY = re.compile(
    rf"<|{re.escape(str(Path(__file__).parent))}/|.*/((site|dist)-packages|lib(64)?/python[\d.]+)/"
)
"""Begin of a file of a frame that is not the user's own, whichever Python runs."""

_NO_INPUT = ": it reads its standard input, which is empty"
_PORT_TAKEN = (
    ": another process has its port: end that one, or let each start take a free one, as torchrun "
    "--standalone does"
)


class ScriptProcess:
    """The processes of one start of a script.

    Args:
        command: What runs.
        environment: All its variables.
        view: Its current folder; what is private of that is gone when it has ended.
        cores: Cores that its processes share; empty: all.
        on_line: Receives each whole line of its output but empty ones, with the time it came at.

    Raises:
        ScriptFailedError: The program cannot be started.
    """

    def __init__(
        self,
        command: tuple[str, ...],
        environment: Mapping[str, str],
        view: WorkingFolder,
        *,
        cores: tuple[int, ...] = (),
        on_line: Callable[[str, float], None] | None = None,
    ) -> None:
        self._on_line = on_line
        self._view = view
        self._command, self._path = command, environment.get("PATH")
        self._tail = b""
        self._line = b""
        self._answers = b""
        self._oom_kills = oom_kill_count() or 0
        self.exit_code: int | None = None
        """Of its first process; ``None`` while that runs."""
        self.time_s: float | None = None
        """From the start of its first process to the end of that; ``None`` while it runs."""
        self.first_pid: int | None = None
        self._failed: str | None = None
        reading, writing = os.pipe()
        self.output: int | None = reading
        os.set_blocking(reading, False)
        with contextlib.suppress(OSError):
            fcntl.fcntl(reading, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        request = ScriptRequest(
            command=command,
            environment={**environment, _FOLDER_VARIABLE: str(view.temporary)},
            folder=str(view.path),
            layers=view.layers,
            private=tuple(map(str, view.private)),
            locks=view.locks,
            cores=cores,
            output=writing,
        )
        try:
            self._supervisor = subprocess.Popen(
                [sys.executable, "-P", "-m", "launch.scripts.supervisor"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                pass_fds=(writing, *view.locks),
                start_new_session=True,  # Ctrl-C is for us, and we tell it
            )
        except BaseException:
            self._close_output()
            raise
        finally:
            os.close(writing)
        assert self._supervisor.stdin is not None
        assert self._supervisor.stdout is not None
        self._control, self.answers = self._supervisor.stdin, self._supervisor.stdout
        try:
            with contextlib.suppress(BrokenPipeError):
                self._control.write(codec.encode(request) + b"\n")
                self._control.flush()
            give_up = time.monotonic() + _START_LIMIT_S
            while self.first_pid is None:
                if self._failed is not None or time.monotonic() > give_up:
                    raise ScriptFailedError(f"it cannot be started: {self._failed or 'no answer'}")
                self.read(0.2)
        except BaseException:
            self.close()
            raise

    @property
    def pids(self) -> list[int]:
        """Its processes now."""
        return sorted(find_descendants(self._supervisor.pid))

    @property
    def output_tail(self) -> str:
        """The last of what it wrote; bytes that are no text are shown as such."""
        return self._tail.decode(errors="replace")

    def read(self, timeout_s: float) -> None:
        """Take what it writes, and how it ends, for at most so long; return after the first."""
        files = [f for f in (self.output, self.answers.fileno()) if f is not None]
        for file in select.select(files, [], [], max(0.0, timeout_s))[0]:
            if file == self.output:
                self.read_output()
            else:
                self._read_answers()

    def read_output(self, most_blocks: int = 1) -> None:
        """Take what it has written by now."""
        for _ in range(most_blocks):
            try:
                block = os.read(self.output, _READ_BYTES) if self.output is not None else b""
            except BlockingIOError:
                return
            if not block:
                self._close_output()
                return
            self._tail = (self._tail + block)[-_TAIL_BYTES:]
            if self._on_line is not None:
                now = time.perf_counter()
                # A progress bar ends its lines by a carriage return.
                *lines, self._line = re.split(rb"[\r\n]", self._line + block)
                self._line = self._line[-_TAIL_BYTES:]
                for line in filter(None, lines):
                    self._on_line(line.decode(errors="replace"), now)

    def suspend(self, ranks: set[int]) -> None:
        """Stop its processes where they are, so that loaders read nothing ahead.

        Those that have started a rank go on: torchrun has to tell itself that it is alive.
        """
        for pid in self.pids:
            if pid in ranks or not find_descendants(pid) & ranks:
                send_signal([pid], signal.SIGSTOP)

    def resume(self) -> None:
        """Let processes go on that `suspend` stopped."""
        send_signal(self.pids, signal.SIGCONT)

    def failure(self, why: str = "") -> ScriptFailedError:
        """Say in one line why it has ended, or ``why`` it counts as failed."""
        self.read_output(64)
        tail = self.output_tail
        killed = self.exit_code == -9 and (oom_kill_count() or 0) > self._oom_kills
        cause = find_script_cause(tail, self._command, self._path)
        lacks_port = bool(self.exit_code) and "address already in use" in cause.lower()
        short = killed or tells_out_of_memory(cause) or "MemoryError" in tail[-400:]
        how = (
            ""
            if self.exit_code is None
            else f"the script has ended, {explain_exit(self.exit_code)}"
        )
        reason = f"{how}, {why}" if how and why else how or why
        if self.exit_code:
            reason += f": {cause}" if cause else ""
            reason += self._find_own_line(tail[: max(0, tail.rfind(cause))])
            if "EOFError" in cause:
                reason += _NO_INPUT
            if lacks_port:
                reason += _PORT_TAKEN
            if killed:
                reason += ": out of memory"
        reason = " ".join(reason.split())
        return ScriptFailedError(reason, tail, out_of_memory=short, lacks_port=lacks_port)

    def _find_own_line(self, log: str) -> str:
        """Say at which line of the user's own an error was raised; nothing where none is seen."""
        frames = [found for found in _FRAME.findall(log) if not _LIBRARY.match(found[0])]
        if not frames:
            return ""
        file, line = frames[-1]
        return f" ({file.removeprefix(f'{self._view.path}/')}, line {line})"

    def close(self) -> None:
        """End all its processes, in bounded time: SIGINT, then SIGTERM, then SIGKILL."""
        with defer_signals():
            with contextlib.suppress(OSError):
                self._control.close()
            give_up = time.monotonic() + INTERRUPT_S + GRACE_S + _GIVE_UP_S
            while self._supervisor.poll() is None and time.monotonic() < give_up:
                self.read(0.02)  # or a script that still prints could not end
                if self.output is None:
                    time.sleep(0.005)
            if self._supervisor.poll() is None:
                self._supervisor.kill()
            if self._supervisor.wait() != 0:  # it was killed, perhaps by somebody else
                private = str(self._view.temporary)
                end_all(lambda: find_marked(_FOLDER_VARIABLE, private), grace_s=0.0)
            self.read_output(64)
            self._close_output()
            self.answers.close()

    def _close_output(self) -> None:
        if self.output is not None:
            os.close(self.output)
            self.output = None

    def _read_answers(self) -> None:
        block = os.read(self.answers.fileno(), _READ_BYTES)
        if not block:
            if self.exit_code is None and self._failed is None:
                self._failed = "its supervisor has ended"
                self.exit_code = -9 if self.first_pid is not None else None
            time.sleep(0.005)
            return
        *lines, self._answers = (self._answers + block).split(b"\n")
        for line in lines:
            answer = json.loads(line)
            self.first_pid = answer.get("pid", self.first_pid)
            self.exit_code = answer.get("ended", self.exit_code)
            self.time_s = answer.get("time_s", self.time_s)
            self._failed = answer.get("failed", self._failed)


def find_script_cause(log: str, command: Sequence[str], path: str | None) -> str:
    """Find the words that say best why a script ended, with its Python if a module is missing."""
    cause = find_cause(log)
    python = _find_interpreter(command, path) if cause.startswith("ModuleNotFoundError") else None
    return f"{cause} in {python}" if python else cause


def _find_interpreter(words: Sequence[str], path: str | None) -> str | None:
    """Find the file of the Python, or of the launcher with its own, that a command names."""
    for word in words:
        name = Path(word).name
        if PYTHON.fullmatch(name) or name in ("torchrun", "accelerate"):
            return shutil.which(word, path=path)
    return None
