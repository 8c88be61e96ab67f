"""Runner of trials: what must be known of a use case, and plans that are started to be timed."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from launch.case_facts import CaseFacts
from launch.errors import LaunchError, UseCaseError
from launch.liveness.hang import DATA_TIMEOUT_S, IdleWatchdog
from launch.plan import Plan
from launch.reports import DataProgress, Described, Warned
from launch.workers.fork_server_pool import ForkServerPool
from launch.workers.group import ReportReceived, WorkerFailure, WorkerGroup, explain_failure
from launch.workers.log import find_user_frame
from launch.workers.task import Purpose, Task
from launch.workload import Workload
from planner.cancellation import Cancellation
from planner.trials.contender import RunningContender
from planner.trials.precision_trial import check_precisions_apart
from planner.trials.reports import Listener, ignore
from probes.hardware import Hardware
from probes.usage import group_cpu_s

_POLL_INTERVAL_S = 1.0


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

    def start(self, plan: Plan) -> RunningContender:
        """Start the processes of a plan, which then make steps as they are told to.

        Raises:
            TrialFailedError: The plan cannot be started here.
        """
        return RunningContender(plan, self._workload, self._node, self._servers, self._cancellation)


def _explain_case_failure(use_case: str, failure: WorkerFailure) -> str:
    if failure.users_fault:
        return failure.message.removeprefix(f"{failure.error}: ")
    return f"use case {use_case} failed before training: {failure.message}"


@contextlib.contextmanager
def _log_directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="ddlplan-") as name:
        yield Path(name)
