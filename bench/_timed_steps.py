"""Workers of the trainer on one machine, and what they report."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from _block import BenchError

from launch.plan import Plan
from launch.reports import Report, StepDone
from launch.workers.fork_server import ForkServer
from launch.workers.group import ReportReceived, WorkerGroup, explain_failure
from launch.workers.task import Purpose, Task, make_worker_tasks
from launch.workload import Workload

_LIMIT_S = 1800.0


def reports_of(server: ForkServer, tasks: list[Task], *, steps: int = 0) -> Iterator[Report]:
    """Start workers, and give what they report until they end or have made all their steps.

    Args:
        server: Starts them.
        tasks: Of each.
        steps: That the workers of a trial make; other tasks come to an end of their own.

    Raises:
        BenchError: One fails, or nobody says anything for long.
    """
    left = steps
    with (
        tempfile.TemporaryDirectory(prefix="ddlplan-bench-") as logs,
        WorkerGroup(server, tasks, Path(logs)) as group,
    ):
        if steps:
            group.permit_steps(steps)
        while event := group.next_event(_LIMIT_S):
            if failure := explain_failure(group, event):
                raise BenchError(f"{failure.message}\n{failure.log_tail}")
            if isinstance(event, ReportReceived):
                yield event.report
                left -= isinstance(event.report, StepDone)
                if steps and not left:
                    return
        if steps or group.pids:
            raise BenchError("the workers went silent")


def train_steps(
    workload: Workload, plan: Plan, cores: Sequence[int], *, warmup: int, steps: int
) -> list[StepDone]:
    """Train for some steps; give what the first worker said of each, without the warm-up."""
    task = Task(purpose=Purpose.TIME, workload=workload, plan=plan)
    tasks = make_worker_tasks(task, tuple(cores))
    with ForkServer() as server:
        reports = list(reports_of(server, tasks, steps=warmup + steps))
    return [report for report in reports if isinstance(report, StepDone)][warmup:]
