"""Processes of a contender on all its hosts: a supervisor on each, and what they report."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from launch.hosts.host_line import Host
from launch.hosts.ssh import remote_command
from launch.reports import Report
from launch.system.session import defer_signals, end_session
from launch.workers.log import find_cause
from planner.peer_runs.supervisor import (
    CommandEnded,
    ProcessesContinued,
    ProcessesStopped,
    SupervisorRequest,
)
from probes import codec

_PROGRAM = [sys.executable, "-P", "-m", "planner.peer_runs.supervisor"]
_READ_BYTES = 1 << 16
_POLL_S = 0.2
_ANSWER_LIMIT_S = 30.0
_END_LIMIT_S = 12.0


class PeerFailedError(Exception):
    """A peer cannot train, or did not go on: the reason, in one line.

    Attributes:
        log_tail: The last of what it wrote.
    """

    def __init__(self, reason: str, log_tail: str = "") -> None:
        super().__init__(reason)
        self.log_tail = log_tail


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisedHost:
    """A host with the request of its supervisor."""

    host: Host | None
    """``None`` for this machine."""

    request: SupervisorRequest


class PeerProcesses:
    """The processes of a contender, on all hosts. Use it in a ``with`` block; leaving it ends them.

    They also end when this process does, however that happens.

    Args:
        hosts: Where they run.
        ssh_config: What `launch.hosts.ssh.write_ssh_config` wrote; ``None`` where all run here.
        on_poll: Called some times a second while something is waited for; what it raises ends that.
    """

    def __init__(
        self,
        hosts: Sequence[SupervisedHost],
        *,
        ssh_config: Path | None = None,
        on_poll: Callable[[], None] = lambda: None,
    ) -> None:
        self._on_poll = on_poll
        self._channels: list[_SupervisorChannel] = []
        with ExitStack() as opened:
            opened.callback(self.close)
            for one in hosts:
                command = list(_PROGRAM)
                if one.host is not None:
                    command = remote_command(one.host, command, ssh_config=ssh_config)
                name = "this machine" if one.host is None else one.host.name
                self._channels.append(_SupervisorChannel(command, one.request, name))
            opened.pop_all()

    def __enter__(self) -> PeerProcesses:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def next_report(self, timeout_s: float) -> Report | None:
        """Wait for what a script reports; ``None`` without a report in that time.

        Raises:
            PeerFailedError: A program has ended, or a host is lost.
        """
        give_up = time.monotonic() + timeout_s
        while True:
            for channel in self._channels:
                if channel.reports:
                    return _checked(channel.reports.popleft(), channel.name)
            left_s = give_up - time.monotonic()
            if left_s <= 0:
                return None
            self._read(min(left_s, _POLL_S))

    def stop(self) -> list[Report]:
        """Stop all; give what was reported until then."""
        return self._order(b"stop\n", ProcessesStopped)

    def proceed(self) -> None:
        """Let all go on."""
        self._order(b"continue\n", ProcessesContinued)

    def close(self) -> None:
        """End all, in bounded time."""
        with defer_signals():
            for channel in self._channels:
                channel.hang_up()
            for channel in self._channels:
                channel.close()

    def _order(self, order: bytes, answer: type[Report]) -> list[Report]:
        """Give an order to all supervisors and wait for their answers."""
        for channel in self._channels:
            channel.send(order)
        others: list[Report] = []
        left = set(self._channels)
        give_up = time.monotonic() + _ANSWER_LIMIT_S
        while left:
            for channel in list(left):
                while channel.reports and channel in left:
                    report = _checked(channel.reports.popleft(), channel.name)
                    if isinstance(report, answer):
                        left.discard(channel)
                    else:
                        others.append(report)
            if left and time.monotonic() > give_up:
                name = next(iter(left)).name
                raise PeerFailedError(f"{name} does not answer within {_ANSWER_LIMIT_S:.0f} s")
            if left:
                self._read(_POLL_S)
        return others

    def _read(self, timeout_s: float) -> None:
        self._on_poll()
        by_file = {channel.stdout: channel for channel in self._channels}
        for file in select.select(list(by_file), [], [], timeout_s)[0]:
            by_file[file].read()


class _SupervisorChannel:
    """Connection to one supervisor: commands go there, its reports come back."""

    def __init__(self, command: Sequence[str], request: SupervisorRequest, name: str) -> None:
        self.name = name
        self.reports: deque[Report] = deque()
        self._unread = b""
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with it
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,  # Ctrl-C is for us, and we tell it
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self.stdout = self._process.stdin, self._process.stdout
        self.send(codec.encode(request) + b"\n")

    def send(self, line: bytes) -> None:
        with suppress(BrokenPipeError):  # then reading says why
            self._stdin.write(line)
            self._stdin.flush()

    def read(self) -> None:
        block = os.read(self.stdout.fileno(), _READ_BYTES)
        if not block:
            self._errors.seek(0)
            said = self._errors.read().decode(errors="replace").strip()
            last = said.splitlines()[-1] if said else "no message"
            raise PeerFailedError(f"{self.name}: the connection was lost: {last}", said)
        *lines, self._unread = (self._unread + block).split(b"\n")
        self.reports.extend(map(Report.decode, lines))

    def hang_up(self) -> None:
        with suppress(BrokenPipeError):
            self._stdin.close()

    def close(self) -> None:
        try:
            self._process.wait(_END_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            end_session(self._process.pid, grace_s=0.0)
        self.stdout.close()
        self._errors.close()


def _checked(report: Report, host: str) -> Report:
    if not isinstance(report, CommandEnded):
        return report
    how = f"killed by signal {-report.code}" if report.code < 0 else f"exit code {report.code}"
    where = "" if host == "this machine" else f" on {host}"
    cause = find_cause(report.log_tail)
    reason = f"it ended{where}, {how}" + (f": {cause}" if cause else "")
    raise PeerFailedError(reason, report.log_tail)
