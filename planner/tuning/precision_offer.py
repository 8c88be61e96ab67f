"""Precisions that a search may try: bf16 only after a check of this use case."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

from launch.case_facts import CaseFacts
from launch.plan import Plan
from launch.strategies import strategy_names
from launch.strategies._gpus import cuda_devices, usable_gpus
from planner.errors import NoPlanError
from planner.search.space import uses_cpu, uses_gpus
from planner.tuning.tune_request import TuneRequest
from probes.hardware import Hardware

_CPU_CHOICES = ("bf16", "bf16_internal")
_GPU_CHOICES = ("bf16",)
_SHARE = 0.2
_LEAST_S = 10.0


class CheckPrecisions(Protocol):
    """Tries precisions on a use case's layers."""

    def __call__(
        self, plan: Plan, precisions: tuple[str, ...], *, time_limit_s: float
    ) -> Mapping[str, str | None]:
        """Say for each precision why it is no good on the plan's device, ``None`` if it is good."""


def offer_precisions(
    case: CaseFacts, request: TuneRequest, node: Hardware, check: CheckPrecisions
) -> tuple[CaseFacts, tuple[str, ...]]:
    """Name the precisions that the user allows and that are good on this node.

    Only those on devices that the wanted strategies use are checked.

    Args:
        case: What is trained.
        request: What the user allows.
        node: This machine.
        check: Tries precisions.

    Returns:
        The use case with its precisions, and a line for each that is left out.

    Raises:
        NoPlanError: Only bf16 is allowed, and no form of it is good here.
    """
    if request.precision == "fp32":
        return case, ()
    limit_s = max(_LEAST_S, _SHARE * request.budget_s)
    cores = node.cpu.usable_cores
    plan = Plan(strategy="threads", node_batch=case.default_batch, threads_per_process=cores)
    on_cpu: Mapping[str, str | None] = {}
    on_gpu: Mapping[str, str | None] = {}
    wanted = request.strategies or strategy_names()
    if uses_cpu(wanted, case, node):
        on_cpu = check(plan, _CPU_CHOICES, time_limit_s=limit_s)
    if gpus := usable_gpus(node) if uses_gpus(wanted, case, node) else []:
        plan = replace(plan, devices=cuda_devices(gpus[:1]))
        on_gpu = check(plan, _GPU_CHOICES, time_limit_s=limit_s)
    reasons = (*_reasons(on_cpu, " on the CPU" if gpus else ""), *_reasons(on_gpu, " on the GPU"))
    cpu, gpu = _good(on_cpu), _good(on_gpu)
    if request.precision == "auto":
        cpu, gpu = ("fp32", *cpu), ("fp32", *gpu)
    elif not cpu and not gpu:
        raise NoPlanError(f"{'; '.join(reasons)}: use --precision fp32")
    # Strategies draw from at least one; plans that the user does not allow are left out later.
    return replace(case, precisions=cpu or ("fp32",), gpu_precisions=gpu or ("fp32",)), reasons


def _good(obstacles: Mapping[str, str | None]) -> tuple[str, ...]:
    return tuple(precision for precision, obstacle in obstacles.items() if obstacle is None)


def _reasons(obstacles: Mapping[str, str | None], where: str) -> list[str]:
    return [
        f"{precision} is not offered{where}: {obstacle}"
        for precision, obstacle in obstacles.items()
        if obstacle is not None
    ]
