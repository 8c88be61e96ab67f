"""Which plans break a rule that holds on every node."""

from __future__ import annotations

import pytest

from launch.errors import InvalidPlanError
from launch.plan import Plan


@pytest.mark.parametrize("device", ["tpu", "cuda", "cuda:", "cuda:x", "cuda:-1", "CPU", " cpu", 0])
def test_a_device_that_torch_does_not_have_is_one_line(device):
    with pytest.raises(InvalidPlanError, match=f"^devices hold {device!r}: use cpu, or cuda:0 "):
        Plan(strategy="sequential", node_batch=8, devices=("cpu", device))
