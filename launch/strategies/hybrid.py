"""Hybrid parallelism: several pipelines side by side, gradients averaged between equal stages.

``r`` pipelines of ``s`` stages occupy ``r * s`` devices. Each trains a share of the node batch, in
micro-batches as `pipeline` does. Against one pipeline over all devices the pipe is shorter, so that
its bubble is smaller and its layers are cut into fewer, more equal stages; against data
parallelism each worker holds, updates and averages a part of the model alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from launch.errors import InvalidPlanError
from launch.plan import Plan
from launch.strategies._stages import Layout, StagedStrategy

if TYPE_CHECKING:
    from launch.case_facts import CaseFacts
    from probes.hardware import Hardware


class Hybrid(StagedStrategy):
    name = "hybrid"
    min_workers = 4

    def layouts(self, case: CaseFacts, node: Hardware) -> Mapping[str, Layout]:
        every = self.list_layouts(case, node)
        return {f"{r}x{s}x{t}": (r, s, t) for r, s, t in every if r > 1}

    def guess_layout(self, case: CaseFacts, node: Hardware) -> str:
        return next(iter(self.layouts(case, node)))  # two stages are the shortest pipe

    def check(self, plan: Plan) -> None:
        if plan.replicas < 2:
            raise InvalidPlanError(
                f"strategy=hybrid and replicas={plan.replicas}: use at least 2, or pipeline"
            )
        super().check(plan)
