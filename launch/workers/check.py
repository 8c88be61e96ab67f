"""Which precisions are good for this use case here? Asked of each in a worker."""

from __future__ import annotations

import traceback
from pathlib import Path

from launch.training.precision_check import PrecisionCheck
from launch.training.precision_figures import find_obstacle
from launch.use_cases._base import UseCase
from launch.workers.reports import PrecisionChecked, Reporter
from launch.workers.task import Task


def check_precisions(task: Task, case: UseCase, reporter: Reporter) -> None:
    """Try each of the task's precisions and report it as soon as it is judged."""
    assert task.plan is not None
    data = Path(task.data) if task.data else None
    check = PrecisionCheck(task.plan, case, data)
    for precision in task.precisions:
        try:
            obstacle = find_obstacle(check.measure(precision))
        except Exception as error:  # noqa: BLE001 - the user's own code runs here and may raise anything
            traceback.print_exc()
            obstacle = f"{type(error).__name__}: {' '.join(str(error).split())[:500]}"
        reporter.send(PrecisionChecked(precision=precision, obstacle=obstacle))
