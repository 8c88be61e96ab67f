"""Runner of trials: what must be known of a use case, and plans that are started to be timed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from launch.case_facts import CaseFacts
from launch.errors import UseCaseError
from launch.plan import Plan
from launch.reports import Described, PrecisionChecked, Report
from launch.system.temporary_folder import TemporaryFolder
from launch.workers.fork_server_pool import ForkServerPool
from launch.workers.group import ReportReceived, WorkerFailure, WorkerGroup, explain_failure
from launch.workers.task import Purpose, Task, make_worker_tasks
from launch.workload import Workload
from planner.cancellation import POLL_INTERVAL_S, Cancellation
from planner.trials.contender import RunningContender
from planner.trials.lone_task import run_lone_task
from planner.trials.reports import Listener, ignore
from probes.hardware import Hardware

_MANY_EPOCHS = 1000
"""More than a short training has time for."""


class TrialRunner:
    """Starts plans of one use case on this node.

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

    def describe(
        self, listener: Listener = ignore, *, checked_digest: str | None = None
    ) -> CaseFacts:
        """Make the data ready and learn what a planner must know of the use case.

        Args:
            listener: Receives how far the data are, and warnings.
            checked_digest: Of the use case as it was described before, where it was: its loss is
                not checked again, which takes the time of many steps.

        Raises:
            CancelledError: The end was asked for.
            UseCaseError: The use case or its data are at fault, or hang.
            LaunchError: The process that loads it was ended from outside.
        """
        found = run_lone_task(
            self._servers.get(),
            Task(
                purpose=Purpose.DESCRIBE,
                workload=self._workload,
                case_digests=() if checked_digest is None else (checked_digest,),
            ),
            Described,
            self._cancellation,
            listener,
            doing="its data are made ready",
            make_error=self._make_error,
        )
        return found.facts

    def _make_error(self, failure: WorkerFailure) -> UseCaseError:
        if failure.users_fault:
            return UseCaseError(failure.message.removeprefix(f"{failure.error}: "))
        use_case = self._workload.use_case
        return UseCaseError(f"use case {use_case} failed before training: {failure.message}")

    def check_precisions(
        self, plan: Plan, precisions: tuple[str, ...], *, time_limit_s: float
    ) -> dict[str, str | None]:
        """Say for each precision why it is no good on a plan's device, ``None`` if it is good.

        A process that dies has died of the precision that it was trying; another one tries the
        rest. The time is for all precisions together.
        """
        deadline = time.monotonic() + time_limit_s
        late = f"its check took more than {time_limit_s:.0f} s: raise --budget"
        found: dict[str, str | None] = {}
        while waiting := precisions[len(found) :]:
            if time.monotonic() >= deadline:
                return found | dict.fromkeys(waiting, late)
            task = Task(
                purpose=Purpose.CHECK_PRECISION,
                workload=self._workload,
                plan=plan,
                precisions=waiting,
            )
            tasks = make_worker_tasks(task, self._node.cpu.choose_cores(plan.threads))
            with TemporaryFolder() as logs, WorkerGroup(self._servers.get(), tasks, logs) as group:
                done, fault = self._hear_precisions(group, deadline)
            found |= done
            if left := waiting[len(done) :]:
                found[left[0]] = fault or late
        return found

    def _hear_precisions(
        self, group: WorkerGroup, deadline: float
    ) -> tuple[dict[str, str | None], str | None]:
        """Hear what a process finds until it ends or the time is up; say why, if it fails."""
        found: dict[str, str | None] = {}
        while (left_s := deadline - time.monotonic()) > 0:
            self._cancellation.check()
            event = group.next_event(min(left_s, POLL_INTERVAL_S))
            if event is None and group.pids:
                continue
            if event is None:
                break
            if failure := explain_failure(group, event):
                return found, f"the process that tried it failed: {failure.message}"
            if isinstance(event, ReportReceived) and isinstance(event.report, PrecisionChecked):
                found[event.report.precision] = event.report.obstacle
        return found, None

    def train_shortly(self, plan: Plan) -> Iterator[Report | None]:
        """Train as a launch does, every step measured; it ends with the iteration.

        Yields:
            What the workers report; ``None`` where they have said nothing for a second.

        Raises:
            CancelledError: The end was asked for.
            UseCaseError: A worker failed.
        """
        task = Task(
            purpose=Purpose.TRAIN,
            workload=self._workload,
            plan=plan,
            epochs=_MANY_EPOCHS,
            noise_cost_limit=1.0,
        )
        tasks = make_worker_tasks(task, self._node.cpu.choose_cores(plan.threads))
        with TemporaryFolder() as logs, WorkerGroup(self._servers.get(), tasks, logs) as group:
            while group.pids or group.has_events():
                self._cancellation.check()
                event = group.next_event(POLL_INTERVAL_S)
                if event is None:
                    yield None
                    continue
                if failure := explain_failure(group, event):
                    raise UseCaseError(
                        f"use case {self._workload.use_case} failed in a short training: "
                        f"{failure.message}"
                    )
                if isinstance(event, ReportReceived):
                    yield event.report

    def start(
        self,
        plan: Plan,
        *,
        epochs: int | None = None,
        on_report: Callable[[Report], None] = lambda _: None,
    ) -> RunningContender:
        """Start the processes of a plan, which then make steps as they are told to.

        Args:
            plan: What is run.
            epochs: Of a training with validations, as a launch has it; ``None``: steps without end.
            on_report: Receives what the workers report.

        Raises:
            TrialFailedError: The plan cannot be started here.
        """
        return RunningContender(
            plan,
            self._workload,
            self._node,
            self._servers,
            self._cancellation,
            epochs=epochs,
            on_report=on_report,
        )
