"""GPU data parallelism: one process per GPU, gradients averaged while they are computed.

Each worker computes the gradients of its share of the node batch on a GPU of its own; torch's
DistributedDataParallel averages them over NCCL, from GPU to GPU, behind the backward pass: see
`launch.training.ddp_replica`. With one GPU nothing is averaged and nothing added.

Source: Li et al., "PyTorch Distributed", 2020, https://arxiv.org/abs/2006.15704.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from launch.errors import InvalidPlanError
from launch.plan import Plan, Setting
from launch.strategies._base import Strategy, Suggest
from launch.strategies._gpus import cuda_devices, usable_gpus, why_no_gpu
from launch.strategies._rules import require, require_distinct_devices, require_options
from launch.strategies._settings import draw, first_guess, gpu_settings

if TYPE_CHECKING:
    from launch.case_facts import CaseFacts
    from launch.local_group.group import LocalGroup
    from launch.training.step import TrainStep
    from launch.use_cases._base import UseCase
    from probes.hardware import Hardware

BENCHMARK = "cudnn_benchmark"
"""Option: whether cuDNN times its algorithms for each shape once, or chooses by rules."""


class GpuData(Strategy):
    def obstacle(self, case: CaseFacts, node: Hardware) -> str | None:
        return why_no_gpu(node)

    def uses_gpus(self, node: Hardware) -> bool:
        return True

    def suggest(self, trial: Suggest, case: CaseFacts, node: Hardware) -> Plan:
        gpus = trial.suggest_categorical("gpu_data.gpus", _counts(node))
        return Plan(
            strategy="gpu_data",
            processes=gpus,
            replicas=gpus,
            # All its cores, though one thread drives a GPU: its loading processes inherit them.
            threads_per_process=node.cpu.usable_cores // gpus,
            devices=cuda_devices(usable_gpus(node)[:gpus]),
            options={BENCHMARK: trial.suggest_categorical(f"gpu_data.{BENCHMARK}", (False, True))},
            **draw(trial, "gpu_data", gpu_settings(case, node, may_record=gpus == 1)),
        )

    def first_guesses(self, case: CaseFacts, node: Hardware) -> list[dict[str, Setting]]:
        settings = gpu_settings(case, node, may_record=True)
        guess = {f"gpu_data.{BENCHMARK}": True, **first_guess("gpu_data", settings)}
        return [{"gpu_data.gpus": gpus, **guess} for gpus in reversed(_counts(node))]

    def check(self, plan: Plan) -> None:
        require(plan, replicas=plan.processes)
        require_distinct_devices(plan, plan.processes)
        require_options(plan, BENCHMARK)
        if plan.cuda_graph and plan.processes > 1:
            # What goes between GPUs would have to be recorded too, under rules of its own.
            raise InvalidPlanError(
                f"strategy=gpu_data, processes={plan.processes} and cuda_graph=True: only one "
                "process can replay its step, use cuda_graph=False"
            )

    def sends_at_end(self, plan: Plan) -> bool:
        return plan.processes > 1 or super().sends_at_end(plan)

    def build(self, plan: Plan, case: UseCase, group: LocalGroup) -> TrainStep:
        import torch

        from launch.training.ddp_step import DdpStep
        from launch.training.plain_step import make_single_step

        torch.backends.cudnn.benchmark = bool(plan.options.get(BENCHMARK, False))
        if plan.processes == 1:
            return make_single_step(plan, case, group)
        return DdpStep(plan, case, group)


def _counts(node: Hardware) -> tuple[int, ...]:
    """List numbers of GPUs worth trying: all, and down to one by halves; each with a core."""
    most = min(len(usable_gpus(node)), node.cpu.usable_cores)
    halves = {most >> power for power in range(most.bit_length())} - {0}
    return tuple(sorted(halves))
