"""Host's part of a script on several hosts: its torchrun, what that writes, and its end.

A program, ``python -m launch.scripts.host_part``, which is started here or by ssh. It reads a
`HostPartRequest` as the first line of stdin and answers whether it can start; then it obeys lines:
``start PORT``, ``signal N``, and empty ones, which say that its owner is alive. When stdin ends or
nothing comes for a while, it ends every process below it.

``python -m launch.scripts.host_part end`` ends what such a program has left that was killed.
"""

from __future__ import annotations

import contextlib
import os
import select
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from launch.errors import LaunchError
from launch.hosts.host_programs import END, SILENCE_LIMIT_S
from launch.plan import Plan
from launch.reports import Report
from launch.scripts.environment import ScriptStart, make_start
from launch.scripts.program import Program
from launch.scripts.step_counter import CountedSteps, StepCounter
from launch.scripts.torchrun_nodes import TorchrunNodes
from launch.system.machine_lock import Occupant, training_noticed
from launch.system.process_end import die_with_parent, kill_group
from launch.system.process_tree import (
    adopt_orphans,
    end_all,
    end_descendants,
    find_marked,
    has_ended,
    open_end,
    reap_orphans,
)
from launch.system.report_stream import ReportStream
from launch.system.session import defer_signals
from probes.child_process import read_request
from probes.hardware import Hardware

MARK = "DDLPLAN_SCRIPT_MARK"
"""Variable in the environment of all processes of one launch."""

_POLL_S = 0.2
_GRACE_S = 5.0
_OUTPUT_LIMIT_S = 5.0
_READ_BYTES = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPartRequest:
    """What runs on one host."""

    arguments: tuple[str, ...]
    """Of the user, with placeholders."""

    plan: Plan
    node: Hardware
    nodes: TorchrunNodes
    folder: str
    mark: str
    """Value of `MARK`."""

    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables of the user, in place of those of the host."""

    interface: str | None = None
    """Network interface that leads to the other hosts."""

    counts_steps: bool = False
    """Whether the steps are counted here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartReady(Report):
    """It can start."""

    command: tuple[str, ...]
    """As the user would write it, without what torchrun is told of the other hosts."""

    environment: Mapping[str, str]
    cores: tuple[int, ...]
    port: int
    """That is free here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartRefused(Report):
    """It cannot start, for a reason of the command or of its plan."""

    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PartOutput(Report):
    """Something that the script wrote."""

    stream: int
    """1 or 2: stdout or stderr."""

    text: str
    """Each byte as the character of that number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartEnded(Report):
    """The script has ended here, with all that it had started."""

    code: int
    """Below 0: ended by a signal."""

    counted: CountedSteps | None

    ended_by: str | None = None
    """Words of the error that ended it, where it had some."""


class HostPart:
    """The script's processes on this host."""

    def __init__(self, request: HostPartRequest) -> None:
        self._request = request
        self._reports = ReportStream()
        self._unread = b""
        self._orders: deque[bytes] = deque()
        self._heard = time.monotonic()
        has_ipv6 = Path("/proc/net/if_inet6").exists()
        self._listener = socket.socket(socket.AF_INET6 if has_ipv6 else socket.AF_INET)
        """Keeps the port of the first host until it is needed."""

    def run(self) -> None:
        """Look after the script until it or stdin ends."""
        adopt_orphans()
        request = self._request
        try:
            os.chdir(request.folder)
        except OSError as error:
            self._refuse(f"folder {request.folder}: {error.strerror}: it must be on every host")
            return
        program = Program(arguments=request.arguments)
        # All but those of the plan.
        variables = {"PYTHONUNBUFFERED": "1", **os.environ, **request.environment}
        try:
            start = make_start(program, request.plan, request.node, variables)
            path = variables.get("PATH")
            program.check(start.command, Path.cwd(), path)
            self._check_script(start)
        except LaunchError as error:
            self._refuse(str(error))
            return
        self._listener.bind(("", 0))
        self._reports.send(
            PartReady(
                command=start.command,
                environment={**self._interfaces(variables), **start.environment},
                cores=start.cores or tuple(sorted(os.sched_getaffinity(0))),
                port=self._listener.getsockname()[1],
            )
        )
        port = self._await_start()
        if port is None:
            self._listener.close()
            return
        occupant = Occupant.of_this_process(f"ddlplan launch -- {shlex.join(request.arguments)}")
        with training_noticed(occupant, self._warn):
            self._listener.close()  # as late as can be: it keeps the port
            ended = self._train(program, variables, port)
        self._reports.send(ended)

    def _refuse(self, message: str) -> None:
        self._reports.send(PartRefused(message=message))

    def _warn(self, message: str) -> None:
        text = f"warning: {self._request.node.node}: {message}\n"
        self._reports.send(PartOutput(stream=2, text=text.encode().decode("latin-1")))

    def _check_script(self, start: ScriptStart) -> None:
        """Check that the file of the script is here."""
        file = Program(arguments=start.command).target
        if file.endswith(".py") and not Path(file).is_file():
            raise LaunchError(f"no file {file!r} in {self._request.folder}: copy it there")

    def _interfaces(self, variables: Mapping[str, str]) -> dict[str, str]:
        """Give the variables that name the network, where the user has not set them."""
        name = self._request.interface
        if name is None:
            return {}
        wanted = {"GLOO_SOCKET_IFNAME": name, "NCCL_SOCKET_IFNAME": f"={name}"}
        return {one: value for one, value in wanted.items() if one not in variables}

    def _await_start(self) -> int | None:
        """Wait for the port to start with; ``None`` where there is nothing to start."""
        while self._read(_POLL_S):
            while self._orders:  # a signal may stand behind it
                word, _, value = self._orders.popleft().partition(b" ")
                if word == b"start":
                    return int(value)
        return None

    def _train(self, program: Program, variables: dict[str, str], port: int) -> PartEnded:
        request = self._request
        with StepCounter(errors_alone=not request.counts_steps) as counter:
            watch = counter.settings
            start = make_start(program, request.plan, request.node, variables, watch=watch)
            owner = os.getpid()

            def prepare() -> None:  # in torchrun's process, before it becomes that
                die_with_parent(owner, signal.SIGTERM)
                if start.cores:
                    os.sched_setaffinity(0, start.cores)

            child = subprocess.Popen(
                request.nodes.add_to(start.started_command, port),
                env={
                    **variables,
                    **self._interfaces(variables),
                    **start.started_environment,
                    MARK: request.mark,
                },
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                process_group=0,
                preexec_fn=prepare,
            )
            code = self._wait_for_end(child)
        counted = counter.result(request.plan.processes) if code == 0 else None
        return PartEnded(code=code, counted=counted, ended_by=counter.ended_by)

    def _wait_for_end(self, child: subprocess.Popen[bytes]) -> int:
        """Wait for the end of a program, and end all that is left then; give its exit code."""
        assert child.stdout is not None
        assert child.stderr is not None
        pumps = [
            threading.Thread(target=self._pass_on, args=(number, file), daemon=True)
            for number, file in ((1, child.stdout), (2, child.stderr))
        ]
        for pump in pumps:
            pump.start()
        end = open_end(child.pid)
        try:
            while not has_ended(child.pid) and self._read(_POLL_S, *end):
                reap_orphans(child.pid)
                while self._orders:
                    word, _, value = self._orders.popleft().partition(b" ")
                    if word == b"signal":
                        kill_group(child.pid, int(value))
            if not has_ended(child.pid):
                child.send_signal(signal.SIGTERM)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(_GRACE_S)
                child.kill()
            code = child.wait()
        finally:
            for descriptor in end:
                os.close(descriptor)
            end_descendants(grace_s=1.0)
        for pump in pumps:
            pump.join(_OUTPUT_LIMIT_S)
        return code

    def _pass_on(self, stream: int, file: IO[bytes]) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        with contextlib.suppress(OSError):
            while block := os.read(file.fileno(), _READ_BYTES):
                self._reports.send(PartOutput(stream=stream, text=block.decode("latin-1")))

    def _read(self, timeout_s: float, *others: int) -> bool:
        """Read what the owner wants; false where it is gone."""
        if 0 in select.select([0, *others], [], [], timeout_s)[0]:
            block = os.read(0, _READ_BYTES)
            if not block:
                return False
            self._heard = time.monotonic()
            *lines, self._unread = (self._unread + block).split(b"\n")
            self._orders += lines
        return time.monotonic() <= self._heard + SILENCE_LIMIT_S


def main() -> None:
    """Read the request and look after the script."""
    request = read_request(HostPartRequest)
    if sys.argv[1:] == [END]:
        end_all(lambda: find_marked(MARK, request.mark), grace_s=0.0)
        return
    try:
        with contextlib.suppress(BrokenPipeError):
            HostPart(request).run()
    finally:
        with defer_signals():
            end_descendants(grace_s=0.0)


if __name__ == "__main__":
    main()
