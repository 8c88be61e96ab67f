"""Comparing with peers: what is refused before anything is measured."""

from __future__ import annotations

import pytest

from launch.job import NodeJob
from launch.plan import Plan
from planner.api.comparing import check_loader_workers, check_on_cpu, explain_precision
from planner.errors import UsageError


def test_plan_on_gpus_is_not_compared_with_peers_on_the_cpu():
    cpu = Plan(strategy="threads", node_batch=32)
    check_on_cpu([(3, cpu)])
    gpu = Plan(strategy="gpu_data", node_batch=32, devices=("cuda:0",))
    with pytest.raises(UsageError, match="plan 7 trains on cuda:0, and peers on the CPU"):
        check_on_cpu([(3, cpu), (7, gpu)])


def test_more_data_loading_processes_than_a_host_could_use_are_refused():
    """A million of them were started."""
    check_loader_workers(8, 2)
    with pytest.raises(UsageError, match="--loader-workers 9 and usable_cores=2: use at most 8,"):
        check_loader_workers(9, 2)


def test_every_host_whose_plan_computes_in_another_precision_is_named():
    """The story: only the first host's plan was looked at."""
    first, second = (
        NodeJob(host=host, plan=Plan(strategy="threads", node_batch=32, precision=precision))
        for host, precision in (("n1", "fp32"), ("n2", "bf16"))
    )
    assert explain_precision([first]) is None
    assert explain_precision([second]) == "our plan computes in bf16, its peers in fp32"
    assert explain_precision([first, second]) == (
        "our plans compute in bf16 on n2, their peers in fp32"
    )
