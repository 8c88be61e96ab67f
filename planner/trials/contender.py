"""Contender: a plan whose workers are kept warm, and make steps when it has its turn."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Protocol

from launch.errors import InvalidPlanError, LaunchError, NotFiniteError
from launch.plan import Plan
from launch.reports import Compiled, Report, StepDone
from launch.system.temporary_folder import TemporaryFolder
from launch.workers.fork_server_pool import ForkServerPool
from launch.workers.group import ReportReceived, WorkerFailure, WorkerGroup, explain_failure
from launch.workers.task import Purpose, Task, make_worker_tasks
from launch.workload import Workload
from planner.cancellation import POLL_INTERVAL_S, Cancellation
from planner.trials.result import Outcome
from probes.disturbance import Disturbance, DisturbanceWatch
from probes.hardware import Hardware
from probes.sampling.gpu_watch import GpuWatch
from probes.usage import find_group, mapped_bytes, resident_bytes

_MEMORY_GROWTH = 1.02
"""Memory is counted exactly only once it has grown by so much: it takes time."""


class TrialFailedError(Exception):
    """A plan made no steps, for a reason that is a result of its trial.

    Attributes:
        outcome: Of the trial.
        reason: The same line.
        log_tail: The last of what its processes wrote.
        lacks_port: Whether another process, as of a plan beside it, had a port that it needs.
    """

    def __init__(
        self,
        outcome: Outcome,
        reason: str,
        log_tail: str | None = None,
        *,
        lacks_port: bool = False,
    ) -> None:
        super().__init__(reason)
        self.outcome = outcome
        self.reason = reason
        self.log_tail = log_tail
        self.lacks_port = lacks_port


class Contender(Protocol):
    """A plan that makes steps when it is told to, and stands still between."""

    @property
    def peak_memory_bytes(self) -> int | None:
        """Highest memory of all its processes so far, shared pages counted once."""

    @property
    def compile_s(self) -> float | None:
        """Time that it took to compile; ``None`` where it compiled nothing."""

    @property
    def disturbance(self) -> Disturbance | None:
        """What others took of the machine during its last steps; ``None``: that is not known."""

    def make_steps(self, count: int, *, time_limit_s: float) -> Sequence[StepDone]:
        """Make so many steps, and stand still again.

        Args:
            count: Of the steps.
            time_limit_s: Wall time for all of them.

        Raises:
            TrialFailedError: The plan failed, or its time is up.
        """

    def close(self) -> None:
        """End its processes."""


StartContender = Callable[[Plan], Contender]
"""Starts the processes of a plan. They stand still until `Contender.make_steps`.

Raises `TrialFailedError` where the plan cannot run here.
"""


class RunningContender:
    """The worker processes of a plan, in a race with others on the same cores.

    While another one has its turn, every process of this one is stopped, so that its loader
    processes read nothing ahead in time that does not count.

    Args:
        plan: What is run.
        workload: What is trained.
        node: This machine.
        servers: Start its workers, and end them with themselves.
        cancellation: Ends its steps.
        epochs: Of a whole training with validations, which is what a launch runs; ``None``: steps
            without end.
        on_report: Receives what its workers report.

    Raises:
        TrialFailedError: The plan cannot be started here.
    """

    def __init__(
        self,
        plan: Plan,
        workload: Workload,
        node: Hardware,
        servers: ForkServerPool,
        cancellation: Cancellation,
        *,
        epochs: int | None = None,
        on_report: Callable[[Report], None] = lambda _: None,
    ) -> None:
        self._on_report = on_report
        self.peak_memory_bytes: int | None = None
        self.compile_s: float | None = None
        self.disturbance: Disturbance | None = None
        self._watch = DisturbanceWatch(node.cpu)
        self._gpu_watch = GpuWatch(node.gpu_uuids(plan.devices), are_used=True)
        self._cancellation = cancellation
        self._mapped_bytes = self._made = 0
        with ExitStack() as opened:
            opened.callback(self._gpu_watch.close)
            try:
                plan.check_fits(node.cpu.usable_cores)
                logs = opened.enter_context(TemporaryFolder())
                task = Task(purpose=Purpose.TIME, workload=workload, plan=plan)
                if epochs is not None:
                    task = replace(task, purpose=Purpose.TRAIN, epochs=epochs, by_turns=True)
                tasks = make_worker_tasks(task, node.cpu.choose_cores(plan.threads))
                server = servers.get(plan)
                self._group = opened.enter_context(WorkerGroup(server, tasks, logs))
            except InvalidPlanError as error:
                raise TrialFailedError(Outcome.CRASH, str(error)) from error
            except LaunchError as error:
                servers.end(plan)
                raise TrialFailedError(Outcome.CRASH, str(error)) from error
            self._opened = opened.pop_all()

    def make_steps(self, count: int, *, time_limit_s: float) -> list[StepDone]:
        """Make so many steps; see `Contender.make_steps`."""
        deadline = time.monotonic() + time_limit_s
        self._gpu_watch.begin()
        self._watch.begin()
        self._group.resume()
        self._group.permit_steps(count)
        steps: list[StepDone] = []
        try:
            while len(steps) < count:
                self._receive(steps, deadline - time.monotonic())
        except LaunchError as error:
            raise TrialFailedError(Outcome.CRASH, str(error)) from error
        finally:
            self._group.suspend()
        self._made += len(steps)
        pids = find_group(*self._group.pids)
        self.disturbance = self._gpu_watch.end(self._watch.end(pids))
        self._sample_memory(pids)
        return steps

    def finish(self, *, time_limit_s: float) -> None:
        """Let a training that has made all its steps validate, and wait for its end.

        Raises:
            TrialFailedError: It failed, or its time is up.
        """
        deadline = time.monotonic() + time_limit_s
        self._group.resume()
        self._group.permit_steps(1)
        try:
            while self._group.pids or self._group.has_events():
                self._receive([], deadline - time.monotonic())
        except LaunchError as error:
            raise TrialFailedError(Outcome.CRASH, str(error)) from error

    def close(self) -> None:
        """End every process of the plan."""
        self._opened.close()

    def _receive(self, steps: list[StepDone], left_s: float) -> None:
        self._cancellation.check()
        if left_s <= 0:
            self._sample_memory(find_group(*self._group.pids))
            number = self._made + len(steps) + 1
            reason = f"step {number} did not end in the time that the plan had"
            raise TrialFailedError(Outcome.TIME_LIMIT, reason)
        event = self._group.next_event(min(left_s, POLL_INTERVAL_S))
        if event is None:
            return
        if isinstance(event, ReportReceived):
            self._on_report(event.report)
        if failure := explain_failure(self._group, event):
            raise _failed(failure)
        match event:
            case ReportReceived(report=Compiled(time_s=time_s)):
                self.compile_s = time_s
            case ReportReceived(report=StepDone() as done):
                if not math.isfinite(done.loss):
                    reason = f"loss={done.loss} at step {done.step}"
                    raise TrialFailedError(Outcome.NAN_LOSS, reason)
                steps.append(done)

    def _sample_memory(self, pids: Sequence[int]) -> None:
        mapped = mapped_bytes(pids)
        if mapped > _MEMORY_GROWTH * self._mapped_bytes:
            self._mapped_bytes = mapped
            used = resident_bytes(pids) or 0
            self.peak_memory_bytes = max(self.peak_memory_bytes or 0, used) or None


def _failed(failure: WorkerFailure) -> TrialFailedError:
    outcome = Outcome.OUT_OF_MEMORY if failure.out_of_memory else Outcome.CRASH
    if failure.error == NotFiniteError.__name__:
        outcome = Outcome.NAN_LOSS
    reason = f"worker {failure.worker}: {failure.message}"
    return TrialFailedError(outcome, reason, failure.log_tail or None)
