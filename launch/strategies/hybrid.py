"""Hybrid parallelism: several pipelines side by side, gradients averaged between equal stages.

``r`` pipelines of ``s`` stages occupy ``r * s`` devices. Each trains a share of the node batch, in
micro-batches as `pipeline` does. Against one pipeline over all devices the pipe is shorter, so that
its bubble is smaller and its layers are cut into fewer, more equal stages; against data
parallelism each worker holds, updates and averages a part of the model alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from launch.errors import InfeasiblePlanError, InvalidPlanError
from launch.plan import Plan, Setting
from launch.strategies._base import Strategy, Suggest
from launch.strategies._stages import (
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

_AT_LEAST = 4


class Hybrid(Strategy):
    def obstacle(self, case: CaseFacts, node: Hardware) -> str | None:
        return find_obstacle(case, node, _layouts(case, node), at_least=_AT_LEAST)

    def suggest(self, trial: Suggest, case: CaseFacts, node: Hardware) -> Plan:
        if obstacle := self.obstacle(case, node):
            raise InfeasiblePlanError(obstacle)
        layout = trial.suggest_categorical("hybrid.layout", _layouts(case, node))
        replicas, stages, threads = map(int, layout.split("x"))
        parts = (replicas, stages, threads)
        return draw_plan(trial, "hybrid", parts, case, node, at_least=_AT_LEAST)

    def first_guesses(self, case: CaseFacts, node: Hardware) -> list[dict[str, Setting]]:
        guess = guess_settings("hybrid", case, node, at_least=_AT_LEAST)
        # The first uses most of the node; two stages are the shortest pipe.
        return [{"hybrid.layout": _layouts(case, node)[0], **guess}]

    def check(self, plan: Plan) -> None:
        if plan.replicas < 2:
            raise InvalidPlanError(
                f"strategy=hybrid and replicas={plan.replicas}: use at least 2, or pipeline"
            )
        check_stages(plan)

    def sends_at_end(self, plan: Plan) -> bool:
        return True  # large matrices get theirs after the last micro-batch

    def build(self, plan: Plan, case: UseCase, group: LocalGroup) -> TrainStep:
        from launch.training.pipeline_step import PipelineStep

        return PipelineStep(plan, case, group)


def _layouts(case: CaseFacts, node: Hardware) -> tuple[str, ...]:
    """List the ways to part the devices, as ``replicas x stages x threads of each``."""
    every = list_layouts(case, node, at_least=_AT_LEAST)
    return tuple(f"{r}x{s}x{t}" for r, s, t in every if r > 1)
