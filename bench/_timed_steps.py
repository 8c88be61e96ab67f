"""Steps of the trainer itself on one machine, as it reports them."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from _block import BenchError

from launch.plan import Plan
from launch.reports import StepDone
from launch.workers.fork_server import ForkServer
from launch.workers.group import ReportReceived, WorkerGroup, explain_failure
from launch.workers.task import Purpose, Task, make_worker_tasks
from launch.workload import Workload


def train_steps(
    workload: Workload, plan: Plan, cores: Sequence[int], *, warmup: int, steps: int
) -> list[StepDone]:
    """Train for some steps; give what the first worker said of each, without the warm-up.

    Raises:
        BenchError: It fails, or says nothing.
    """
    task = Task(purpose=Purpose.TIME, workload=workload, plan=plan)
    tasks = make_worker_tasks(task, tuple(cores))
    said: list[StepDone] = []
    with (
        ForkServer() as server,
        tempfile.TemporaryDirectory(prefix="ddlplan-bench-") as folder,
        WorkerGroup(server, tasks, Path(folder)) as group,
    ):
        group.permit_steps(warmup + steps)
        while len(said) < warmup + steps:
            event = group.next_event()
            if event is None:
                raise BenchError("the trainer went silent")
            if failure := explain_failure(group, event):
                raise BenchError(f"{failure.message}\n{failure.log_tail}")
            if isinstance(event, ReportReceived) and isinstance(event.report, StepDone):
                said.append(event.report)
    return said[warmup:]
