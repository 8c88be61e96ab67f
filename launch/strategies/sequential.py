"""Sequential training: one process, one thread on a CPU or one GPU.

Nothing is spread, so nothing is lost to spreading.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from launch.plan import Plan, Setting
from launch.strategies._base import Strategy, Suggest
from launch.strategies._gpus import cuda_devices, usable_gpus
from launch.strategies._rules import require, require_devices, require_options
from launch.strategies._settings import cpu_settings, draw, first_guess, gpu_settings

if TYPE_CHECKING:
    from launch.case_facts import CaseFacts
    from launch.local_group.group import LocalGroup
    from launch.training.step import TrainStep
    from launch.use_cases._base import UseCase
    from probes.hardware import Hardware

_ON_GPU = "sequential.gpu"
"""What names of a GPU's settings begin with: their choices are not those of a CPU."""


class Sequential(Strategy):
    def obstacle(self, case: CaseFacts, node: Hardware) -> str | None:
        return None

    def uses_gpus(self, node: Hardware) -> bool:
        return bool(_gpu(node))

    def uses_cpu(self, node: Hardware) -> bool:
        return True

    def suggest(self, trial: Suggest, case: CaseFacts, node: Hardware) -> Plan:
        device = trial.suggest_categorical("sequential.device", ("cpu", *_gpu(node)))
        settings = (
            draw(trial, "sequential", cpu_settings(case, node))
            if device == "cpu"
            else draw(trial, _ON_GPU, gpu_settings(case, node, may_record=True))
        )
        return Plan(strategy="sequential", devices=(device,), **settings)

    def first_guesses(self, case: CaseFacts, node: Hardware) -> list[dict[str, Setting]]:
        on_gpu = first_guess(_ON_GPU, gpu_settings(case, node, may_record=True))
        # More than a few loading processes would only take turns on the one core.
        on_gpu[f"{_ON_GPU}.loader_workers"] = 2
        on_cpu = first_guess("sequential", cpu_settings(case, node))
        return [
            *({"sequential.device": device, **on_gpu} for device in _gpu(node)),
            {"sequential.device": "cpu", **on_cpu},
        ]

    def check(self, plan: Plan) -> None:
        require(plan, processes=1, replicas=1, threads_per_process=1)
        require_devices(plan, 1)
        require_options(plan)

    def begins_early(self, plan: Plan) -> bool:
        return plan.is_eager_on_cpu

    def build(self, plan: Plan, case: UseCase, group: LocalGroup) -> TrainStep:
        from launch.training.plain_step import make_single_step

        return make_single_step(plan, case, group)


def _gpu(node: Hardware) -> tuple[str, ...]:
    """Give the GPU to train on, as a device; nothing where there is none."""
    return cuda_devices(usable_gpus(node)[:1])
