"""Processes of a contender on all its hosts: a supervisor on each, and what they report."""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from launch.hosts.host_line import Host
from launch.hosts.host_programs import SILENCE_LIMIT_S, HostProgram, HostPrograms
from launch.reports import Report
from launch.workers.log import find_cause
from planner.peer_runs.supervisor import (
    CommandEnded,
    ProcessesContinued,
    ProcessesStopped,
    SupervisorRequest,
)

_HERE = "this machine"
_POLL_S = 0.2
_ANSWER_LIMIT_S = 30.0


class PeerFailedError(Exception):
    """A peer cannot train, or did not go on: the reason, in one line.

    Attributes:
        log_tail: The last of what it wrote.
    """

    def __init__(self, reason: str, log_tail: str = "") -> None:
        super().__init__(reason)
        self.log_tail = log_tail


class PeerProcesses(HostPrograms):
    """The processes of a contender: a supervisor on each host.

    Args:
        hosts: What `supervised` gives.
        ssh_config: What `launch.hosts.ssh.write_ssh_config` wrote; ``None`` where all run here.
        on_poll: Called some times a second while something is waited for; what it raises ends that.
    """

    def __init__(
        self,
        hosts: Sequence[HostProgram[SupervisorRequest]],
        *,
        ssh_config: Path | None = None,
        on_poll: Callable[[], None] = lambda: None,
    ) -> None:
        self._on_poll = on_poll
        super().__init__("planner.peer_runs.supervisor", hosts, ssh_config=ssh_config)

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
            channel = by_file[file]
            channel.read()
            if channel.is_over:
                said = channel.read_errors()
                last = said.splitlines()[-1] if said else "no message"
                raise PeerFailedError(f"{channel.name}: the connection was lost: {last}", said)


def supervised(host: Host | None, request: SupervisorRequest) -> HostProgram[SupervisorRequest]:
    """Give a supervisor with its request, on a host; ``None`` for this machine."""
    if host is None:
        return HostProgram(name=_HERE, host=None, request=request)
    # Where its network is cut, sshd there does not notice for a quarter of an hour, or ever.
    request = replace(request, silence_limit_s=SILENCE_LIMIT_S)
    return HostProgram(name=host.name, host=host, request=request)


def _checked(report: Report, host: str) -> Report:
    if not isinstance(report, CommandEnded):
        return report
    how = f"killed by signal {-report.code}" if report.code < 0 else f"exit code {report.code}"
    where = "" if host == _HERE else f" on {host}"
    cause = find_cause(report.log_tail)
    reason = f"it ended{where}, {how}" + (f": {cause}" if cause else "")
    raise PeerFailedError(reason, report.log_tail)
