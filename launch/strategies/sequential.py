"""Sequential training: one process, one thread on a CPU or one GPU. The baseline.

Nothing is spread, so nothing is lost to spreading: every other strategy is judged by how much it
gains over this one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from launch.plan import Plan, Setting
from launch.strategies._base import (
    Strategy,
    Suggest,
    draw_shared_settings,
    guess_shared_settings,
)
from launch.strategies._rules import require, require_devices

if TYPE_CHECKING:
    from launch.case_facts import CaseFacts
    from launch.training.group import LocalGroup
    from launch.training.step import TrainStep
    from launch.use_cases._base import UseCase
    from probes.hardware import Hardware


class Sequential(Strategy):
    def obstacle(self, case: CaseFacts, node: Hardware) -> str | None:
        return None

    def suggest(self, trial: Suggest, case: CaseFacts, node: Hardware) -> Plan:
        device = trial.suggest_categorical("sequential.device", _devices(node))
        settings = draw_shared_settings(trial, "sequential", case)
        return Plan(strategy="sequential", devices=(device,), **settings)

    def first_guesses(self, case: CaseFacts, node: Hardware) -> list[dict[str, Setting]]:
        guess = guess_shared_settings("sequential", case)
        return [{"sequential.device": device, **guess} for device in reversed(_devices(node))]

    def check(self, plan: Plan) -> None:
        require(plan, processes=1, replicas=1, threads_per_process=1)
        require_devices(plan, 1)

    def build(self, plan: Plan, case: UseCase, group: LocalGroup) -> TrainStep:
        from launch.training.plain_step import PlainStep

        return PlainStep(plan, case, plan.devices[0])


def _devices(node: Hardware) -> tuple[str, ...]:
    """List the CPU and, where there is a GPU that torch can use, the first one."""
    usable = [gpu.cuda_index for gpu in node.gpus if gpu.cuda_index is not None]
    return ("cpu", f"cuda:{min(usable)}") if usable else ("cpu",)
