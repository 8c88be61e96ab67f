"""Trial: one plan, run for a short time in processes of its own, as it would train."""

from __future__ import annotations

import contextlib
import math
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from launch.case_facts import CaseFacts
from launch.errors import InvalidPlanError, LaunchError, UseCaseError
from launch.liveness.hang import DATA_TIMEOUT_S, IdleWatchdog
from launch.plan import Plan, Setting
from launch.reports import Compiled, DataProgress, Described, StepDone, Warned
from launch.workers.fork_server import ForkServer
from launch.workers.fork_server_pool import ForkServerPool
from launch.workers.group import ReportReceived, WorkerFailure, WorkerGroup, explain_failure
from launch.workers.log import find_user_frame
from launch.workers.task import Purpose, Task, make_worker_tasks
from launch.workload import Workload
from planner.cancellation import Cancellation
from planner.trials.precision_trial import check_precisions_apart
from planner.trials.reports import Listener, TrialProgress, ignore
from planner.trials.result import Outcome, Role, TrialResult
from probes.hardware import Hardware
from probes.memory import oom_kill_count
from probes.timing import Interval, StepTimes
from probes.usage import find_group, group_cpu_s, mapped_bytes, resident_bytes

_MEMORY_INTERVAL_S = 1.0
_POLL_INTERVAL_S = 1.0
_MEMORY_GROWTH = 1.02
_MIN_SAMPLES = 3
_FEW_SAMPLES_MARGIN = 1.25


class TrialRunner:
    """Runs plans of one use case on this node, one at a time.

    Args:
        workload: What is trained.
        node: This machine.
        servers: Which start its workers, and end them with themselves.
        cancellation: Ends what is running.
    """

    def __init__(
        self,
        workload: Workload,
        node: Hardware,
        servers: ForkServerPool,
        cancellation: Cancellation | None = None,
    ) -> None:
        self._cancellation = cancellation or Cancellation()
        self._workload = workload
        self._node = node
        self._servers = servers

    @property
    def server_pid(self) -> int:
        """Process number of the process that forks the workers."""
        return self._servers.get().pid

    def describe(
        self, listener: Listener = ignore, *, idle_limit_s: float = DATA_TIMEOUT_S
    ) -> CaseFacts:
        """Make the data ready and learn what a planner must know of the use case.

        Args:
            listener: Receives how far the data are, and warnings.
            idle_limit_s: Longest time in which nothing is said or computed.

        Raises:
            CancelledError: The end was asked for.
            UseCaseError: The use case or its data are at fault, or hang.
            LaunchError: The process that loads it was ended from outside.
        """
        task = Task(purpose=Purpose.DESCRIBE, workload=self._workload)
        with _log_directory() as logs, WorkerGroup(self._servers.get(), [task], logs) as group:
            idle = IdleWatchdog(idle_limit_s)
            while group.pids or group.has_events():
                self._cancellation.check()
                if hang := idle.find_hang(group.printed_bytes, lambda: group_cpu_s(*group.pids)):
                    raise UseCaseError(self._explain_hang(hang, group))
                event = group.next_event(_POLL_INTERVAL_S)
                if event is None:
                    continue
                idle.restart()
                if failure := explain_failure(group, event):
                    raise UseCaseError(_explain_case_failure(self._workload.use_case, failure))
                match event:
                    case ReportReceived(report=DataProgress() | Warned() as report):
                        listener(report)
                    case ReportReceived(report=Described(facts=facts)):
                        return facts
        raise LaunchError(
            f"use case {self._workload.use_case} was not described: its process went silent"
        )

    def _explain_hang(self, hang: str, group: WorkerGroup) -> str:
        group.dump_stacks()
        message = f"use case {self._workload.use_case} hangs while its data are made ready: {hang}"
        where = find_user_frame(group.log_tail(0))
        return message if where is None else f"{message}, {where}"

    def check_precisions(
        self, plan: Plan, precisions: tuple[str, ...], *, time_limit_s: float
    ) -> dict[str, str | None]:
        """Find out which precisions are no good on a plan's device: `check_precisions_apart`."""
        task = Task(
            purpose=Purpose.CHECK_PRECISION,
            workload=self._workload,
            plan=plan,
            precisions=precisions,
        )
        cores = self._node.cpu.choose_cores(plan.threads)
        with _log_directory() as logs:
            return check_precisions_apart(
                self._servers.get(),
                task,
                cores,
                logs,
                self._cancellation,
                time_limit_s=time_limit_s,
            )

    def run(
        self,
        plan: Plan,
        *,
        role: Role = Role.SEARCH,
        time_limit_s: float,
        target_s: float = math.inf,
        incumbent_s: Interval | None = None,
        parameters: Mapping[str, Setting] | None = None,
        on_step: Listener = ignore,
    ) -> TrialResult:
        """Time a plan until it is known well enough, has clearly lost, or its time is up.

        Args:
            plan: What to run.
            role: Why.
            time_limit_s: Wall time for everything, the start of its processes included.
            target_s: Wall time after which a plan need not be known more precisely.
            incumbent_s: Best time per sample so far, with its interval.
            parameters: What the search drew, kept with the result.
            on_step: Receives a `TrialProgress` after each step.
        """
        started = time.monotonic()
        monitor = _TrialMonitor(plan, incumbent_s, on_step, started, target_s)
        try:
            server = self._servers.get(plan.allocator)
            server.wait_until_ready()
            monitor.started = started = time.monotonic()  # no plan pays for the loading of torch
            outcome, reason, log_tail = self._run_workers(monitor, server, started + time_limit_s)
        except InvalidPlanError as error:
            outcome, reason, log_tail = Outcome.CRASH, str(error), None
        except LaunchError as error:
            outcome, reason, log_tail = Outcome.CRASH, str(error), None
            self._servers.end(plan.allocator)
        return TrialResult(
            plan=plan,
            role=role,
            outcome=outcome,
            measurement=monitor.times.measurement(force=True),
            peak_memory_bytes=monitor.peak_memory_bytes,
            reason=reason,
            compile_s=monitor.compile_s,
            log_tail=log_tail,
            elapsed_s=time.monotonic() - started,
            parameters=parameters or {},
        )

    def _run_workers(
        self, monitor: _TrialMonitor, server: ForkServer, deadline: float
    ) -> tuple[Outcome, str | None, str | None]:
        monitor.plan.check_fits(self._node.cpu.usable_cores)
        task = Task(purpose=Purpose.TIME, workload=self._workload, plan=monitor.plan)
        oom_kills = oom_kill_count() or 0
        tasks = make_worker_tasks(task, self._node.cpu.choose_cores(monitor.plan.threads))
        with _log_directory() as logs, WorkerGroup(server, tasks, logs) as group:
            while (left_s := deadline - time.monotonic()) > 0:
                self._cancellation.check()
                event = group.next_event(min(left_s, _MEMORY_INTERVAL_S))
                monitor.sample_memory(group)
                if event is None:
                    continue
                if failure := explain_failure(group, event, (oom_kill_count() or 0) - oom_kills):
                    return (*_classify_failure(failure), failure.log_tail or None)
                match event:
                    case ReportReceived(report=Compiled(time_s=time_s)):
                        monitor.compile_s = time_s
                    case ReportReceived(report=StepDone() as done):
                        verdict = monitor.step(done)
                        if verdict is not None:
                            return (*verdict, None)
            return (*monitor.conclude_at_limit(), None)


class _TrialMonitor:
    """Follows one trial and says when enough is known."""

    def __init__(
        self,
        plan: Plan,
        incumbent_s: Interval | None,
        on_step: Listener,
        started: float,
        target_s: float,
    ) -> None:
        self.plan = plan
        self.times = StepTimes()
        self.peak_memory_bytes: int | None = None
        self.compile_s: float | None = None
        self._to_beat_s = incumbent_s
        self._on_step = on_step
        self.started = started
        self._enough_s = target_s
        self._next_memory_s = 0.0
        self._mapped_bytes = 0

    def step(self, done: StepDone) -> tuple[Outcome, str | None] | None:
        """Take note of a step; the verdict, once there is one."""
        self.times.add(done.time_s)
        self._on_step(
            TrialProgress(
                steps=len(self.times.times_s),
                elapsed_s=time.monotonic() - self.started,
                throughput_samples_per_s=done.samples / done.time_s,
            )
        )
        if not math.isfinite(done.loss):
            return Outcome.NAN_LOSS, f"loss={done.loss} at step {done.step}"
        if reason := self._find_clear_loss():
            return Outcome.SLOWER, reason
        return (Outcome.OK, None) if self._is_known() else None

    def conclude_at_limit(self) -> tuple[Outcome, str | None]:
        """Judge a trial that ran into its time limit by the steps that it made."""
        known = self.times.measurement(force=True)
        if known is not None and len(known.samples_s) >= _MIN_SAMPLES:
            return Outcome.OK, None
        steps = len(self.times.times_s)
        return Outcome.TIME_LIMIT, f"{steps} steps until the time limit: raise --budget"

    def sample_memory(self, group: WorkerGroup) -> None:
        """Take note of the memory in use by all processes, about once a second.

        It is counted exactly only while it grows: to count takes time from the plan's cores.
        """
        now = time.monotonic()
        if now < self._next_memory_s:
            return
        self._next_memory_s = now + _MEMORY_INTERVAL_S
        pids = find_group(*group.pids)
        mapped = mapped_bytes(pids)
        if mapped > _MEMORY_GROWTH * self._mapped_bytes:
            self._mapped_bytes = mapped
            used = resident_bytes(pids) or 0
            self.peak_memory_bytes = max(self.peak_memory_bytes or 0, used) or None

    def _is_known(self) -> bool:
        if time.monotonic() - self.started < self._enough_s:
            return self.times.is_precise()
        known = self.times.measurement(force=True)
        return known is not None and len(known.samples_s) >= _MIN_SAMPLES

    def _find_clear_loss(self) -> str | None:
        """Say by how much the plan has lost, as soon as its whole interval says so.

        Two steps after the first suffice where even the faster one is far behind.
        """
        known = self.times.measurement(force=True)
        if self._to_beat_s is None or known is None or len(known.samples_s) < 2:
            return None
        if len(known.samples_s) < _MIN_SAMPLES:
            fastest_s = min(known.samples_s) / _FEW_SAMPLES_MARGIN
        else:
            fastest_s = known.interval_s().low
        if fastest_s / self.plan.node_batch <= self._to_beat_s.high:
            return None
        factor = known.median_s / self.plan.node_batch / self._to_beat_s.median
        return f"{100 * (factor - 1):.0f} % more time per sample than the best plan"


def _classify_failure(failure: WorkerFailure) -> tuple[Outcome, str]:
    outcome = Outcome.OUT_OF_MEMORY if failure.out_of_memory else Outcome.CRASH
    return outcome, f"worker {failure.worker}: {failure.message}"


def _explain_case_failure(use_case: str, failure: WorkerFailure) -> str:
    if failure.users_fault:
        return failure.message.removeprefix(f"{failure.error}: ")
    return f"use case {use_case} failed before training: {failure.message}"


@contextlib.contextmanager
def _log_directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="ddlplan-") as name:
        yield Path(name)
