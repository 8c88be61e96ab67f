"""Pipeline parallelism: consecutive layers live on consecutive devices.

The micro-batches of a step follow one another through ``s`` stages. While the pipe
fills and drains, each device idles for a fraction ``(s - 1) / (m + s - 1)`` of the step, the
*bubble*. Many micro-batches shrink the bubble, few keep each operator large: that trade is
what the search settles. On CPUs, processes on disjoint cores stand for devices.

The layers are cut where it makes the slowest stage quickest: see `launch.training.cut`.

Source: Huang et al., "GPipe", 2019, https://arxiv.org/abs/1811.06965; the schedule 1F1B:
Narayanan et al., "PipeDream", 2019, https://arxiv.org/abs/1806.03377.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from launch.errors import InfeasiblePlanError
from launch.plan import Plan, Setting
from launch.strategies._base import Strategy, Suggest
from launch.strategies._rules import require
from launch.strategies._stages import (
    FIRST_MICRO_BATCHES,
    check_stages,
    draw_plan,
    find_obstacle,
    guess_settings,
    list_layouts,
)

if TYPE_CHECKING:
    from launch.case_facts import CaseFacts
    from launch.training.group import LocalGroup
    from launch.training.step import TrainStep
    from launch.use_cases._base import UseCase
    from probes.hardware import Hardware

_AT_LEAST = 2


class Pipeline(Strategy):
    def obstacle(self, case: CaseFacts, node: Hardware) -> str | None:
        return find_obstacle(case, node, _layouts(case, node), at_least=_AT_LEAST)

    def suggest(self, trial: Suggest, case: CaseFacts, node: Hardware) -> Plan:
        if obstacle := self.obstacle(case, node):
            raise InfeasiblePlanError(obstacle)
        layout = trial.suggest_categorical("pipeline.layout", _layouts(case, node))
        stages, threads = map(int, layout.split("x"))
        return draw_plan(trial, "pipeline", (1, stages, threads), case, node, at_least=_AT_LEAST)

    def first_guesses(self, case: CaseFacts, node: Hardware) -> list[dict[str, Setting]]:
        guess = guess_settings("pipeline", case, node, at_least=_AT_LEAST)
        layout = max(_layouts(case, node), key=_cores_at_work)
        return [{"pipeline.layout": layout, **guess}]

    def check(self, plan: Plan) -> None:
        require(plan, replicas=1)
        check_stages(plan)

    def sends_at_end(self, plan: Plan) -> bool:
        return True  # large matrices get theirs after the last micro-batch

    def build(self, plan: Plan, case: UseCase, group: LocalGroup) -> TrainStep:
        from launch.training.pipeline_step import PipelineStep

        return PipelineStep(plan, case, group)


def _layouts(case: CaseFacts, node: Hardware) -> tuple[str, ...]:
    """List the ways to part the devices, as ``stages x threads of each``."""
    every = list_layouts(case, node, at_least=_AT_LEAST)
    return tuple(f"{stages}x{threads}" for replicas, stages, threads in every if replicas == 1)


def _cores_at_work(layout: str) -> float:
    """Count the cores that work on average: those of all stages, less the share of the bubble."""
    stages, threads = map(int, layout.split("x"))
    return stages * threads * FIRST_MICRO_BATCHES / (FIRST_MICRO_BATCHES + stages - 1)
