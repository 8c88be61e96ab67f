"""Pipeline parallelism: consecutive layers live on consecutive devices.

The micro-batches of a step follow one another through ``s`` stages. While the pipe
fills and drains, each device idles for a fraction ``(s - 1) / (m + s - 1)`` of the step, the
*bubble*. Many micro-batches shrink the bubble, few keep each operator large: the search
finds the best trade. On CPUs, processes on disjoint cores stand for devices.

The layers are cut where it makes the slowest stage quickest: see `launch.training.pipeline.cut`.

Source: Huang et al., "GPipe", 2019, https://arxiv.org/abs/1811.06965; the schedule 1F1B:
Narayanan et al., "PipeDream", 2019, https://arxiv.org/abs/1806.03377.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from launch.plan import Plan
from launch.strategies._rules import require
from launch.strategies._stages import FIRST_MICRO_BATCHES, Layout, StagedStrategy

if TYPE_CHECKING:
    from launch.case_facts import CaseFacts
    from probes.hardware import Hardware


class Pipeline(StagedStrategy):
    name = "pipeline"
    min_workers = 2

    def layouts(self, case: CaseFacts, node: Hardware) -> Mapping[str, Layout]:
        every = self.list_layouts(case, node)
        return {
            f"{stages}x{threads}": (r, stages, threads) for r, stages, threads in every if r == 1
        }

    def guess_layout(self, case: CaseFacts, node: Hardware) -> str:
        layouts = self.layouts(case, node)
        on_gpus = self.uses_gpus(node)
        return max(layouts, key=lambda name: _workers_at_work(layouts[name], on_gpus=on_gpus))

    def check(self, plan: Plan) -> None:
        require(plan, replicas=1)
        super().check(plan)


def _workers_at_work(layout: Layout, *, on_gpus: bool) -> float:
    """Count the GPUs, or cores, that work on average: all stages', less the bubble's share."""
    _, stages, threads = layout
    workers = stages if on_gpus else stages * threads
    return workers * FIRST_MICRO_BATCHES / (FIRST_MICRO_BATCHES + stages - 1)
