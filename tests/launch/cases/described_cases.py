"""What a worker reports of a use case before anything is planned."""

from __future__ import annotations

import os
from typing import Any

import pytest
import tiny_cases

from launch.errors import UseCaseError
from launch.reports import Described, Report, Reporter
from launch.use_cases._adapter import adapt_use_case
from launch.workers.case_description import describe
from launch.workers.task import Purpose, Task
from launch.workload import Workload


def described(case: type | str, **changes: Any) -> list[Report]:
    """Describe a use case, and give what is reported meanwhile, its facts last.

    Args:
        case: The use case.
        changes: Of the task.
    """
    kind = getattr(tiny_cases, case) if isinstance(case, str) else case
    reads, writes = os.pipe()
    try:
        workload = Workload(use_case=kind.__name__)
        task = Task(purpose=Purpose.DESCRIBE, workload=workload, **changes)
        facts = describe(task, adapt_use_case(kind, "tiny"), Reporter(writes))
    finally:
        os.close(writes)
        with os.fdopen(reads, "rb") as pipe:
            lines = pipe.read().splitlines()
    return [*(Report.decode(line) for line in lines), Described(facts=facts)]


def refusal(case: type) -> str:
    """Describe a use case that is refused, and give the message, one line."""
    with pytest.raises(UseCaseError) as caught:
        described(case)
    assert "\n" not in str(caught.value)
    return str(caught.value)
