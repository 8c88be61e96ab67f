"""Check of precisions in a process of its own, which may die of them."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from launch.reports import PrecisionChecked
from launch.workers.fork_server import ForkServer
from launch.workers.group import ReportReceived, WorkerGroup, explain_failure
from launch.workers.task import Task, make_worker_tasks
from planner.cancellation import POLL_INTERVAL_S, Cancellation


def check_precisions_apart(
    server: ForkServer,
    task: Task,
    core_ids: tuple[int, ...],
    logs: Path,
    cancellation: Cancellation,
    *,
    time_limit_s: float,
) -> dict[str, str | None]:
    """Try each precision of a task.

    A process that dies has died of the precision that it was trying; another one tries the rest.

    Args:
        server: Starts the process.
        task: What is checked, where and with which precisions.
        core_ids: Logical CPUs of its threads.
        logs: Folder for what the process prints.
        cancellation: Ends it.
        time_limit_s: For all precisions together.

    Returns:
        For each precision why it is no good here, ``None`` where it is good.
    """
    deadline = time.monotonic() + time_limit_s
    found: dict[str, str | None] = {}
    waiting = list(task.precisions)
    while waiting:
        tasks = make_worker_tasks(replace(task, precisions=tuple(waiting)), core_ids)
        with WorkerGroup(server, tasks, logs) as group:
            done, fault = _receive_results(group, deadline, cancellation)
        found |= done
        waiting = waiting[len(done) :]
        if waiting:
            late = f"its check took more than {time_limit_s:.0f} s: raise --budget"
            found[waiting.pop(0)] = fault or late
    return found


def _receive_results(
    group: WorkerGroup, deadline: float, cancellation: Cancellation
) -> tuple[dict[str, str | None], str | None]:
    """Hear what a process finds until it ends or the time is up; say why, if it fails."""
    found: dict[str, str | None] = {}
    while (left_s := deadline - time.monotonic()) > 0:
        cancellation.check()
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
