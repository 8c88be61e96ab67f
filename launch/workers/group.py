"""Running workers of a node: their reports, output and ends."""

from __future__ import annotations

import contextlib
import os
import resource
import select
import selectors
import signal
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from launch.errors import LaunchError, SharedMemoryError
from launch.gradient_sync.node_channel.descriptors import SharedDescriptors
from launch.reports import Failed, Report, TaskDone
from launch.system.process_end import explain_exit, kill_group
from launch.system.process_tree import send_signal
from launch.workers.fork_server import DUMP_STACKS, ForkServer, WorkerExit
from launch.workers.log import (
    KILLED_FOR_MEMORY,
    BoundedLog,
    read_tail,
    tells_killed_loader,
    tells_out_of_memory,
)
from launch.workers.step_permits import grant_steps, open_permits
from launch.workers.task import Task
from probes.memory import oom_kill_count

_END_LIMIT_S = 10.0
_DUMP_LIMIT_S = 1.0
_MAX_READS = 128
_TAIL_LINES = 60
_OPEN_FILES = 1 << 16
_OUT_OF_MEMORY = ("MemoryError", "OutOfMemoryError", SharedMemoryError.__name__)
"""Names of exceptions."""


@dataclass(frozen=True, slots=True)
class ReportReceived:
    """A worker reported something."""

    worker: int
    report: Report


@dataclass(frozen=True, slots=True)
class WorkerEnded:
    """A worker's process has ended."""

    worker: int
    code: int
    is_done: bool
    """Whether it had done its task by then."""


WorkerEvent = ReportReceived | WorkerEnded


class WorkerGroup:
    """The workers of one plan, from their start to their end.

    Use it in a ``with`` block; leaving it ends every worker that still runs.

    Args:
        server: Forks them.
        tasks: Of each.
        log_directory: Folder of their logs.
        log_prefix: Start of the names of their logs.
        descriptors: Shared by the workers; given where their owner uses them too.
    """

    def __init__(
        self,
        server: ForkServer,
        tasks: list[Task],
        log_directory: Path,
        *,
        log_prefix: str = "",
        descriptors: SharedDescriptors | None = None,
    ) -> None:
        _let_open_files()
        self._oom_kills = oom_kill_count() or 0
        self._server = server
        self._logs = [log_directory / f"{log_prefix}worker{t.local_rank}.log" for t in tasks]
        self._open_logs: list[BoundedLog] = []
        self._pipes: dict[int, int] = {}
        self._outputs: dict[int, int] = {}
        self._permits: list[int] = []
        self._unread = [b""] * len(tasks)
        self._done: set[int] = set()
        self.printed_bytes = 0
        """Bytes that the workers have printed so far."""
        self._pids: dict[int, int] = {}
        self._events: deque[WorkerEvent] = deque()
        self._selector = selectors.DefaultSelector()
        self._selector.register(server, selectors.EVENT_READ)
        shared = descriptors
        try:
            shared = shared or SharedDescriptors.create()
            for worker, task in enumerate(tasks):
                self._start(worker, task, shared)
        except BaseException:
            self.stop()
            raise
        finally:
            if descriptors is None and shared is not None:
                shared.close()

    def __enter__(self) -> WorkerGroup:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def running(self) -> dict[int, int]:
        """Process numbers of the workers that still run, by worker."""
        return {worker: pid for pid, worker in self._pids.items()}

    @property
    def pids(self) -> list[int]:
        """Process numbers of the workers that still run."""
        return list(self._pids)

    @property
    def size(self) -> int:
        """Number of workers, ended ones included."""
        return len(self._logs)

    def next_event(self, timeout_s: float | None = None) -> WorkerEvent | None:
        """Wait for the next event. Reports of a worker come before its end.

        Returns:
            ``None`` when nothing happened in time, or when every worker has ended.

        Raises:
            LaunchError: The process that starts workers has ended, and the workers with it.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not self._events and self._pids:
            self._take_exits()  # those that another group of this server was told of
            left = None if deadline is None else deadline - time.monotonic()
            if self._events or (left is not None and left <= 0):
                break
            for key, _ in self._selector.select(left):
                if key.fileobj is self._server:
                    self._take_exits()
                    continue
                # Of a worker whose end was noted a moment ago, both are closed by now.
                if key.fd == self._pipes.get(key.data):
                    self._read(key.data)
                elif key.fd == self._outputs.get(key.data):
                    self._read_output(key.data)
        return self._events.popleft() if self._events else None

    def has_events(self) -> bool:
        """Whether `next_event` has something to give at once."""
        return bool(self._events)

    def permit_steps(self, count: int) -> None:
        """Let every worker of a trial make so many steps more."""
        for permits in self._permits:
            grant_steps(permits, count)

    def suspend(self) -> None:
        """Stop every process of the workers where it is: loader processes read ahead no more."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let processes go on that `suspend` stopped."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        for pid in self._pids:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, number)

    def stop(self) -> None:
        """End every worker at once and wait for their ends."""
        for pid in self._pids:
            kill_group(pid)
        deadline = time.monotonic() + _END_LIMIT_S
        with contextlib.suppress(LaunchError):  # the server has ended, and its workers with it
            self._take_exits()
            ends = select.poll()  # not the selector: pipes of ended workers are readable for ever
            ends.register(self._server, select.POLLIN)
            while self._pids and (left_s := deadline - time.monotonic()) > 0:
                ends.poll(1000 * left_s)
                self._take_exits()
        for worker in list(self._outputs):
            self._drain_output(worker)
        for pipes in (self._pipes, self._outputs):
            for worker in list(pipes):
                self._close(pipes, worker)
        while self._permits:
            os.close(self._permits.pop())
        for log in self._open_logs:
            log.close()
        self._open_logs.clear()
        self._selector.close()

    def log(self, worker: int) -> Path:
        """File of a worker's stdout and stderr."""
        return self._logs[worker]

    def log_tail(self, worker: int) -> str:
        """Read the last lines of a worker's log."""
        if worker in self._outputs:
            self._drain_output(worker)
        return read_tail(self._logs[worker], _TAIL_LINES)

    def count_oom_kills(self) -> int:
        """Count the processes that the kernel has killed for memory since the workers' start.

        That reads files of the kernel, which only a failure is worth.
        """
        return (oom_kill_count() or 0) - self._oom_kills

    def dump_stacks(self) -> None:
        """Have every worker write its stacks to its log, as far as it can."""
        send_signal(self._pids, DUMP_STACKS)
        answer_by = time.monotonic() + _DUMP_LIMIT_S
        while (left_s := answer_by - time.monotonic()) > 0 and self._pids:
            self.next_event(left_s)  # takes what they write

    def _start(self, worker: int, task: Task, descriptors: SharedDescriptors) -> None:
        self._open_logs.append(BoundedLog(self._logs[worker]))
        with (
            self._open_pipe(self._outputs, worker) as output,
            self._open_pipe(self._pipes, worker) as report,
        ):
            self._permits.append(open_permits())
            pid = self._server.start_worker(task, output, report, self._permits[-1], descriptors)
        self._pids[pid] = worker

    @contextlib.contextmanager
    def _open_pipe(self, pipes: dict[int, int], worker: int) -> Iterator[int]:
        """Open a pipe from a worker; yield the end that it writes to, and close that here."""
        pipes[worker], writing = os.pipe()
        try:
            os.set_blocking(pipes[worker], False)
            self._selector.register(pipes[worker], selectors.EVENT_READ, worker)
            yield writing
        finally:
            os.close(writing)

    def _read(self, worker: int) -> None:
        block = b""
        with contextlib.suppress(BlockingIOError):  # another process still holds the other end
            block = os.read(self._pipes[worker], 65536)
        if not block:
            self._close(self._pipes, worker)
            return
        *lines, self._unread[worker] = (self._unread[worker] + block).split(b"\n")
        for report in map(Report.decode, lines):
            if isinstance(report, TaskDone):
                self._done.add(worker)
            else:
                self._events.append(ReportReceived(worker, report))

    def _read_output(self, worker: int) -> bool:
        """Log a block of a worker's output; return whether there was any."""
        try:
            block = os.read(self._outputs[worker], 1 << 16)
        except BlockingIOError:
            return False
        if not block:
            self._close(self._outputs, worker)
            return False
        self._open_logs[worker].write(block)
        self.printed_bytes += len(block)
        return True

    def _drain_output(self, worker: int) -> None:
        """Log what a worker has written by now; after so many reads it is writing without end."""
        for _ in range(_MAX_READS):
            if worker not in self._outputs or not self._read_output(worker):
                return

    def _take_exits(self) -> None:
        for ended in self._server.take_exits(self._pids):
            self._record_end(ended)

    def _record_end(self, ended: WorkerExit) -> None:
        worker = self._pids.pop(ended.pid, None)
        if worker is None:
            return
        while worker in self._pipes:  # all its reports are in the pipe by now
            self._read(worker)
        if worker in self._outputs:
            self._drain_output(worker)
        self._events.append(WorkerEnded(worker, ended.code, worker in self._done))

    def _close(self, pipes: dict[int, int], worker: int) -> None:
        pipe = pipes.pop(worker)
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(pipe)
        os.close(pipe)


def _let_open_files() -> None:
    """Let this process have as many files open as the workers of some plans need: four for each.

    A shell allows 1024: two plans side by side with a worker on each of 128 cores need more.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < (wanted := min(_OPEN_FILES, hard)):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerFailure:
    """Root cause of a worker's failure."""

    worker: int
    error: str | None
    """Name of the exception's class, ``None`` where the process was killed."""
    message: str
    out_of_memory: bool
    users_fault: bool
    log_tail: str
    log: Path
    signal: int | None = None
    """The signal that ended the process, if one did."""


def explain_failure(group: WorkerGroup, event: WorkerEvent) -> WorkerFailure | None:
    """Explain why a worker failed, ``None`` where ``event`` is no failure.

    Args:
        group: The workers.
        event: Result of `WorkerGroup.next_event`.
    """
    if isinstance(event, ReportReceived) and isinstance(event.report, Failed):
        failed = event.report
        message = f"{failed.error}: {failed.message}"
        return WorkerFailure(
            worker=event.worker,
            error=failed.error,
            message=message,
            out_of_memory=failed.error in _OUT_OF_MEMORY
            or tells_out_of_memory(message)
            or (tells_killed_loader(message) and group.count_oom_kills() > 0),
            users_fault=failed.users_fault,
            log_tail=group.log_tail(event.worker),
            log=group.log(event.worker),
        )
    if isinstance(event, WorkerEnded) and (event.code != 0 or not event.is_done):
        out_of_memory = event.code == -9 and group.count_oom_kills() > 0
        return WorkerFailure(
            worker=event.worker,
            error=None,
            message=_explain_end(event.code, out_of_memory=out_of_memory),
            out_of_memory=out_of_memory,
            users_fault=False,
            log_tail=group.log_tail(event.worker),
            log=group.log(event.worker),
            signal=-event.code if event.code < 0 else None,
        )
    return None


def _explain_end(code: int, *, out_of_memory: bool) -> str:
    if code == 0:
        return "ended with exit code 0 before its work was done: does the use case leave Python?"
    return explain_exit(code) + (f" {KILLED_FOR_MEMORY}" if out_of_memory else "")
