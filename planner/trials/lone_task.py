"""Task of one worker that trains nothing: it loads a use case and reports what was asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from launch.errors import LaunchError, UseCaseError
from launch.liveness.hang import DATA_TIMEOUT_S, IdleWatchdog
from launch.reports import DataProgress, Report, Warned
from launch.system.temporary_folder import TemporaryFolder
from launch.workers.fork_server import ForkServer
from launch.workers.group import ReportReceived, WorkerFailure, WorkerGroup, explain_failure
from launch.workers.log import find_user_frame
from launch.workers.task import Task
from planner.cancellation import POLL_INTERVAL_S, Cancellation
from planner.trials.reports import Listener
from probes.usage import group_cpu_s

R = TypeVar("R", bound=Report)


def run_lone_task(
    server: ForkServer,
    task: Task,
    wanted: type[R],
    cancellation: Cancellation,
    listener: Listener,
    *,
    doing: str,
    make_error: Callable[[WorkerFailure], LaunchError],
) -> R:
    """Run a task in a process of its own until it reports what is wanted.

    Args:
        server: Forks the process.
        task: Of one worker.
        wanted: Kind of the report.
        cancellation: Ends it.
        listener: Receives how far the data are, and warnings.
        doing: What it hangs in, where it does: ``its data are made ready``.
        make_error: Makes the error of its failure.

    Raises:
        CancelledError: The end was asked for.
        UseCaseError: The use case or its data hang.
        LaunchError: It failed, or the process was ended from outside.
    """
    use_case = task.workload.use_case
    with TemporaryFolder() as logs, WorkerGroup(server, [task], logs) as group:
        idle = IdleWatchdog(DATA_TIMEOUT_S)
        while group.pids or group.has_events():
            cancellation.check()
            if hang := idle.find_hang(group.printed_bytes, lambda: group_cpu_s(*group.pids)):
                raise UseCaseError(
                    _explain_hang(f"use case {use_case} hangs while {doing}: {hang}", group)
                )
            event = group.next_event(POLL_INTERVAL_S)
            if event is None:
                continue
            idle.restart()
            if failure := explain_failure(group, event):
                raise make_error(failure)
            match event:
                case ReportReceived(report=DataProgress() | Warned() as report):
                    listener(report)
                case ReportReceived(report=report) if isinstance(report, wanted):
                    return report
    raise LaunchError(f"the process of use case {use_case} went silent while {doing}")


def _explain_hang(message: str, group: WorkerGroup) -> str:
    group.dump_stacks()
    where = find_user_frame(group.log_tail(0))
    return message if where is None else f"{message}, {where}"
