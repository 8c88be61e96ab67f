"""What is said of a use case before anything is planned."""

from __future__ import annotations

import os

import pytest
import tiny_cases
import torch

from launch.errors import UseCaseError
from launch.reports import Report, Reporter, Warned
from launch.use_cases._adapter import adapt_use_case
from launch.workers.case_description import describe
from launch.workers.task import Purpose, Task
from launch.workload import Workload


def said_of(case: type) -> list[Report]:
    """Describe a use case, and give what is reported meanwhile."""
    reads, writes = os.pipe()
    try:
        task = Task(purpose=Purpose.DESCRIBE, workload=Workload(use_case=case.__name__))
        describe(task, adapt_use_case(case, "tiny"), Reporter(writes))
    finally:
        os.close(writes)
        with os.fdopen(reads, "rb") as pipe:
            lines = pipe.read().splitlines()
    return [Report.decode(line) for line in lines]


def test_a_model_with_batch_norm_is_warned_of_parts_on_hosts_replicas_and_micro_batches():
    (warned,) = [said for said in said_of(tiny_cases.Normed) if isinstance(said, Warned)]
    assert "every host, replica and micro-batch applies to its own part" in warned.message
    assert "one host with replicas=1 and micro_batches=1" in warned.message


def test_a_model_without_batch_norm_is_not():
    assert not [said for said in said_of(tiny_cases.Sgd) if isinstance(said, Warned)]


class ManySteps(tiny_cases.Sgd):
    def optimizer(self, parameters):
        return torch.optim.LBFGS(parameters)


def test_an_optimizer_that_evaluates_the_model_by_itself_is_refused_before_the_search():
    with pytest.raises(UseCaseError, match=r"optimizer LBFGS .*'closure'.*: use"):
        said_of(ManySteps)
