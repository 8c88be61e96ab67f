"""Supervisor of a contender on one host: starts it, stops it between its turns, and ends it.

A program, ``python -m planner.peer_runs.supervisor``, which is started here or by ssh. It reads a
`SupervisorRequest` as the first line of stdin, then ``stop`` or ``continue`` as others, and empty
lines, which say that its owner is alive. On stdout it writes what the training script reports, and
its own reports. When stdin ends, because who started it says so or is gone, it ends every process
of the contender; on another host also when it hears nothing for a while, as its network is cut.

Launchers hide their workers well: Ray's have another session, mpirun's on other hosts another
parent. But all have inherited a variable in their environment.

``python -m planner.peer_runs.supervisor end`` ends what such a program has left that was killed.
"""

from __future__ import annotations

import contextlib
import os
import platform
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from launch.hosts.host_programs import END
from launch.packages.malicious_releases import find_malicious_release
from launch.reports import Report
from launch.system.durable_files import write_in_place
from launch.system.process_end import bind_to_parent
from launch.system.process_tree import (
    adopt_orphans,
    end_all,
    find_descendants,
    find_marked,
    is_stopped,
    list_pids,
    reap_all,
    send_signal,
)
from launch.system.session import defer_signals
from launch.system.temporary_folder import (
    is_own_folder,
    lock_for_processes,
    remove_abandoned,
    remove_folders,
)
from launch.workers.log import read_tail
from planner.peers._base import PeerStart
from probes.child_process import read_request

TOKEN_VARIABLE = "DDLPLAN_PEER"  # noqa: S105 - a name

_POLL_S = 0.1
_READ_BYTES = 1 << 16
_TAIL_LINES = 200
_MAX_STOP_LOOKS = 10
_STOP_LIMIT_S, _STOP_POLL_S = 0.5, 0.001
_WAITING = frozenset(("ssh", "mpirun", "orterun", "orted", "prterun", "prted"))
"""Names of processes: ssh, and what starts and ends ranks in Open MPI 4 and in 5."""

_GRACE_S = 3.0

_LEFT_OUT = (
    *("OMP_", "MKL_", "KMP_", "GOMP_", "OMPI_", "PMIX_", "PRTE_", "PMI_"),
    *("ACCELERATE_", "RAY_", "TF_CONFIG"),
)
"""Where a variable is set it is no default any more; the others are those of a job around us."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorRequest:
    """What a supervisor is to look after."""

    token: str
    """Value of `TOKEN_VARIABLE` in all processes of the contender."""

    folder: str
    """Made, private, and removed in the end. The reports of the script come through it."""

    commands: tuple[PeerStart, ...] = ()
    """Started in this order; none where another host starts the processes of this one. None ends
    while the contender is well."""

    modules: tuple[str, ...] = ()
    """What they import: nothing is started where a malicious release of one is installed."""

    address: str | None = None
    """Of this host: gloo is told the interface that has it."""

    listens_everywhere: bool = False
    """Whether others may reach servers of it through any interface: nothing is started where this
    host has more than that one."""

    job: str | None = None
    """Document of a job of ours: then the workers of its rank are what is stopped."""

    silence_limit_s: float | None = None
    """It ends when it has heard nothing of its owner for so long; ``None``: it waits for the end of
    stdin, which this machine's kernel is sure to tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessesStopped(Report):
    """Every process of the contender stands still."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessesContinued(Report):
    """They go on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandEnded(Report):
    """A command has ended."""

    code: int
    """Negative for a signal."""

    log_tail: str


class PeerSupervisor:
    """The processes of a contender on this host."""

    def __init__(self, request: SupervisorRequest) -> None:
        self._request = request
        self._folder = Path(request.folder)
        self._pipe = self._folder / platform.node()
        self._children: dict[Path, subprocess.Popen[bytes]] = {}
        """By the log of each."""
        self._opened: tuple[int, ...] = ()
        """Descriptors of files in the folder."""

    def run(self) -> None:
        """Look after them until stdin ends, or nothing comes for too long."""
        adopt_orphans()
        remove_abandoned(self._folder.parent)
        self._folder.mkdir(mode=0o700, exist_ok=True)
        if not is_own_folder(self._folder):
            raise PermissionError(f"{self._folder} is no folder of user {os.geteuid()}")
        self._opened += lock_for_processes(self._folder)
        os.mkfifo(self._pipe, 0o600)
        # Open for writing as well: it never ends, and no script waits for a reader.
        reports = os.open(self._pipe, os.O_RDWR | os.O_NONBLOCK)
        self._opened += (reports,)
        try:
            if (refusal := self._find_refusal()) is not None:
                _write(CommandEnded(code=1, log_tail=refusal).encode())
            for number, command in enumerate(() if refusal else self._request.commands):
                self._start(command, self._folder / f"{platform.node()}-{number}.log")
            self._look(reports)
        finally:
            self.end()
            reap_all()

    def end(self) -> None:
        """End them, in bounded time, and remove the folder."""
        with defer_signals():
            if self._request.job is not None:
                self._continue()  # so that they can end: their rank sees to it
            else:
                end_all(self._find, grace_s=_GRACE_S, reaps=True)
            if is_own_folder(self._folder):
                opened, self._opened = self._opened, ()
                remove_folders([self._folder], opened)

    def _find_refusal(self) -> str | None:
        """Give why nothing may be started on this host, in one line."""
        request = self._request
        refusals = filter(None, map(find_malicious_release, request.modules))
        if (refusal := next(refusals, None)) is not None or not request.listens_everywhere:
            return refusal
        if not (others := _find_other_interfaces(request.address)):
            return None
        return (
            f"its servers would listen on {', '.join(others)} too: compare it where each host has "
            "one network, or on one host"
        )

    def _start(self, one: PeerStart, path: Path) -> None:
        for name, text in one.files.items():
            write_in_place(self._folder / name, text.encode())  # others may read it already
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as log:
            self._children[path] = subprocess.Popen(
                bind_to_parent(list(one.command)),
                cwd=self._folder,
                env={**self._environment(), **one.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _environment(self) -> dict[str, str]:
        """Give variables that leave defaults alone and let processes find one another."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_LEFT_OUT)}
        beside = str(Path(sys.executable).parent)
        interface = _find_interface(self._request.address)
        return {
            **kept,
            "PATH": f"{beside}{os.pathsep}{kept.get('PATH', os.defpath)}",
            "TMPDIR": str(self._folder),
            "HF_HOME": str(self._folder / "huggingface"),  # no settings of the user's
            **({} if interface is None else {"GLOO_SOCKET_IFNAME": interface}),
            TOKEN_VARIABLE: self._request.token,
        }

    def _look(self, reports: int) -> None:
        actions: dict[bytes, Callable[[], Report]] = {
            b"stop": self._stop,
            b"continue": self._continue,
        }
        orders, heard, limit_s = b"", time.monotonic(), self._request.silence_limit_s
        while True:
            readable = select.select([0, reports], [], [], _POLL_S)[0]
            is_silent = limit_s is not None and time.monotonic() > heard + limit_s
            if reports in readable:
                self._pass_on(reports)
            if 0 in readable:
                block = os.read(0, _READ_BYTES)
                if not block:
                    return
                heard = time.monotonic()
                *lines, orders = (orders + block).split(b"\n")
                for line in filter(None, lines):
                    report = actions[line]()
                    self._pass_on(reports)  # what was reported before comes before
                    _write(report.encode())
            elif is_silent:
                return
            self._tell_ends(reports)

    def _pass_on(self, reports: int) -> None:
        with contextlib.suppress(BlockingIOError):
            while block := os.read(reports, _READ_BYTES):
                _write(block)

    def _tell_ends(self, reports: int) -> None:
        for log, child in list(self._children.items()):
            if (code := child.poll()) is None:
                continue
            del self._children[log]
            self._pass_on(reports)
            _write(CommandEnded(code=code, log_tail=read_tail(log, _TAIL_LINES)).encode())

    def _stop(self) -> ProcessesStopped:
        """Stop all processes that train, and those that they start while they are being stopped."""
        stopped = set[int]()
        for _ in range(_MAX_STOP_LOOKS):
            new = {pid for pid in self._find() - stopped if not _only_waits(pid)}
            if not new:
                break
            send_signal(new, signal.SIGSTOP)
            _await_stop(new)
            stopped |= new
        return ProcessesStopped()

    def _continue(self) -> ProcessesContinued:
        send_signal(self._find(), signal.SIGCONT)
        return ProcessesContinued()

    def _find(self) -> set[int]:
        if self._request.job is not None:
            return _find_workers(self._request.job)
        return find_marked(TOKEN_VARIABLE, self._request.token)


def _only_waits(pid: int) -> bool:
    """Tell whether a process waits for others that train, and answers for them meanwhile.

    A server of ssh that asks whether its client is still there ends the connection of a stopped
    one, and with it a job of mpirun.
    """
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip() in _WAITING
    return False


def _find_workers(job: str) -> set[int]:
    """Find the workers of a job's rank on this host, by the document that the rank was given.

    A rank's own child is the server that starts them. Rank and server go on: they speak for them.
    """
    found = set[int]()
    word = job.encode()
    for pid in list_pids():
        with contextlib.suppress(OSError, psutil.Error):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if word in words and words[0] == sys.executable.encode():
                for server in psutil.Process(pid).children():
                    found |= find_descendants(server.pid)
    return found


def _await_stop(pids: set[int]) -> None:
    """Wait until signals have arrived: a process that computes takes them a moment later."""
    give_up = time.monotonic() + _STOP_LIMIT_S
    while pids and time.monotonic() < give_up:
        pids = {pid for pid in pids if Path(f"/proc/{pid}").exists() and not is_stopped(pid)}
        time.sleep(_STOP_POLL_S)


def _find_interface(address: str | None) -> str | None:
    if address is None:
        return None
    interfaces = psutil.net_if_addrs().items()
    found = (str(name) for name, own in interfaces if address in {one.address for one in own})
    return next(found, None)


def _find_other_interfaces(address: str | None) -> list[str]:
    """Find interfaces with an address by which others may reach this host, but for one's."""
    own, states = _find_interface(address), psutil.net_if_stats()
    return [
        name
        for name, addresses in psutil.net_if_addrs().items()
        if name != own and name in states and states[name].isup
        if "loopback" not in states[name].flags.split(",")
        if any(one.family in (socket.AF_INET, socket.AF_INET6) for one in addresses)
    ]


def _write(block: bytes) -> None:
    left = memoryview(block)
    while left:
        left = left[os.write(1, left) :]


def main() -> None:
    """Read the request and look after it."""
    request = read_request(SupervisorRequest)
    with contextlib.suppress(BrokenPipeError):
        supervisor = PeerSupervisor(request)
        if sys.argv[1:] == [END]:
            supervisor.end()
        else:
            supervisor.run()


if __name__ == "__main__":
    main()
