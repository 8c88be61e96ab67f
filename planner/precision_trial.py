"""Which precisions are no good here, and why? Tried in a process that may die of them."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from launch.workers.fork_server import ForkServer
from launch.workers.group import Said, WorkerGroup, explain_failure
from launch.workers.reports import PrecisionChecked
from launch.workers.task import Task, worker_tasks


def find_obstacles(
    server: ForkServer, task: Task, core_ids: tuple[int, ...], logs: Path, *, time_limit_s: float
) -> dict[str, str | None]:
    """Try each precision of a task.

    A process that dies has died of the precision that it was trying; another one tries the rest.

    Args:
        server: Starts the process.
        task: What is checked, where and with which precisions.
        core_ids: Logical CPUs of its threads.
        logs: Folder for what the process prints.
        time_limit_s: For all precisions together.

    Returns:
        For each precision why it is no good here, ``None`` where it is good.
    """
    deadline = time.monotonic() + time_limit_s
    found: dict[str, str | None] = {}
    waiting = list(task.precisions)
    while waiting:
        tasks = worker_tasks(replace(task, precisions=tuple(waiting)), core_ids)
        with WorkerGroup(server, tasks, logs) as group:
            done, fault = _listen(group, deadline)
        found |= done
        waiting = waiting[len(done) :]
        if waiting:
            late = f"its check took more than {time_limit_s:.0f} s: raise --budget"
            found[waiting.pop(0)] = fault or late
    return found


def _listen(group: WorkerGroup, deadline: float) -> tuple[dict[str, str | None], str | None]:
    """Hear what a process finds until it ends or the time is up; say why, if it fails."""
    found: dict[str, str | None] = {}
    while (left_s := deadline - time.monotonic()) > 0:
        event = group.next_event(left_s)
        if event is None:
            break
        if failure := explain_failure(group, event):
            return found, f"the process that tried it failed: {failure.message}"
        if isinstance(event, Said) and isinstance(event.report, PrecisionChecked):
            found[event.report.precision] = event.report.obstacle
    return found, None
