"""Comparing with peers: what is refused before anything is measured."""

from __future__ import annotations

import pytest

from launch.plan import Plan
from planner.api.comparing import check_on_cpu
from planner.errors import UsageError


def test_plan_on_gpus_is_not_compared_with_peers_on_the_cpu():
    cpu = Plan(strategy="threads", node_batch=32)
    check_on_cpu([(3, cpu)])
    gpu = Plan(strategy="gpu_data", node_batch=32, devices=("cuda:0",))
    with pytest.raises(UsageError, match="plan 7 trains on cuda:0, and peers on the CPU"):
        check_on_cpu([(3, cpu), (7, gpu)])
