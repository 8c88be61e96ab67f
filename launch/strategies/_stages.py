"""What do strategies have in common that put consecutive layers on consecutive devices?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from launch.errors import InvalidPlanError
from launch.plan import Plan, Setting
from launch.strategies._base import (
    draw_shared_settings,
    guess_shared_settings,
    layouts,
    most_cores_first,
)
from launch.strategies._gpu_settings import draw_gpu_settings, guess_gpu_settings
from launch.strategies._gpus import cuda_devices, usable_gpus
from launch.strategies._rules import require, require_distinct_devices
from launch.training.cut import parse_cut

if TYPE_CHECKING:
    from launch.case_facts import CaseFacts
    from launch.strategies._base import Suggest
    from probes.hardware import Hardware

SCHEDULES = ("1f1b", "gpipe")
AVERAGES = ("shared", "all_reduce")
"""How equal stages on CPUs average: in shared memory, or as GPUs do, to compare."""

MICRO_BATCHES = (2, 4, 8, 16)
_MOST_STAGES = 8
FIRST_MICRO_BATCHES = 8  # for two stages a bubble of 1/9

Layout = tuple[int, int, int]
"""Replicas, stages of each, and threads of each stage."""


def find_obstacle(
    case: CaseFacts, node: Hardware, found: Sequence[str], *, at_least: int
) -> str | None:
    """Say why the model cannot be spread over stages here, ``None`` where it can.

    Args:
        case: The use case.
        node: This machine.
        found: The strategy's own layouts that fit.
        at_least: Workers that the strategy needs.
    """
    if case.max_stages < 2:
        return f"max_stages={case.max_stages}: the use case gives no layers(): add the method"
    if not found:
        cores = node.cpu.usable_cores
        return f"usable_cores={cores}: at least {at_least} workers are needed, each with a core"
    return None


def list_layouts(case: CaseFacts, node: Hardware, *, at_least: int) -> list[Layout]:
    """List ``(replicas, stages, threads)`` that fit this node, those that use most of it first.

    On GPUs where there are enough of them, one for each worker; else on cores.
    """
    most = min(case.max_stages, _MOST_STAGES)
    return [
        (workers // stages, stages, threads)
        for workers, threads in _parts(node, at_least=at_least)
        for stages in range(2, min(workers, most) + 1)
        if workers % stages == 0
    ]


def _parts(node: Hardware, *, at_least: int) -> list[tuple[int, int]]:
    """List numbers of workers with the threads of each.

    Beside those that use nearly all cores or half of them, those that leave fewer than ``at_least``
    cores idle: of five cores, four make two pipelines of two stages, and five make none. Where
    there are enough cores at all, ``at_least`` workers are among them.
    """
    cores, gpus = node.cpu.usable_cores, len(usable_gpus(node))
    if gpus >= at_least:
        most = min(gpus, cores)
        return [(workers, cores // workers) for workers in range(most, at_least - 1, -1)]
    pairs = {
        (workers, cores // workers)
        for workers in range(at_least, cores + 1)
        if cores % workers < at_least
    }
    pairs.update(layouts(cores, at_least=at_least))
    return sorted(pairs, key=most_cores_first)


def draw_plan(
    trial: Suggest,
    strategy: str,
    layout: Layout,
    case: CaseFacts,
    node: Hardware,
    *,
    at_least: int,
) -> Plan:
    """Draw everything but the layout, which was drawn before."""
    replicas, stages, threads = layout
    gpus = usable_gpus(node)
    on_gpus = len(gpus) >= at_least
    case = replace(case, can_compile=False)  # what a stage runs is not one model to compile
    settings: dict[str, Any] = (
        draw_gpu_settings(trial, strategy, case, node, micro_batches=MICRO_BATCHES)
        if on_gpus
        else draw_shared_settings(trial, strategy, case, micro_batches=MICRO_BATCHES)
    )
    schedule = trial.suggest_categorical(f"{strategy}.schedule", SCHEDULES)
    most = max(1, settings["node_batch"] // replicas)
    settings["micro_batches"] = min(settings["micro_batches"], most)
    return Plan(
        strategy=strategy,
        processes=replicas * stages,
        replicas=replicas,
        threads_per_process=threads,
        devices=cuda_devices(gpus[: replicas * stages]) if on_gpus else ("cpu",),
        options={
            # Fewer micro-batches than stages never reach the state that 1F1B is about.
            "schedule": schedule if settings["micro_batches"] >= stages else "gpipe",
            "cut": "measured",
        },
        **settings,
    )


def guess_settings(
    strategy: str, case: CaseFacts, node: Hardware, *, at_least: int
) -> dict[str, Setting]:
    """Guess what `draw_plan` should draw first.

    1F1B holds the activations of as many micro-batches as there are stages, GPipe those of all.
    """
    on_gpus = len(usable_gpus(node)) >= at_least
    guess: dict[str, Setting] = (
        guess_gpu_settings(strategy, case, node)
        if on_gpus
        else guess_shared_settings(strategy, case)
    )
    guess[f"{strategy}.micro_batches"] = FIRST_MICRO_BATCHES
    guess[f"{strategy}.schedule"] = "1f1b"
    return guess


def check_stages(plan: Plan) -> None:
    """Hold a plan against what stages can make of it.

    Raises:
        InvalidPlanError: Its values make no sense together.
    """
    require(plan, compile=False, cuda_graph=False)
    if plan.processes % plan.replicas or plan.processes < 2 * plan.replicas:
        raise InvalidPlanError(
            f"strategy={plan.strategy}, processes={plan.processes} and replicas={plan.replicas}: "
            "use a multiple of the replicas, at least two stages for each"
        )
    require_distinct_devices(plan, plan.processes)
    _check_options(plan, stages=plan.processes // plan.replicas)


def _check_options(plan: Plan, *, stages: int) -> None:
    known = ["schedule", "cut"]
    if plan.replicas > 1 and plan.devices == ("cpu",):
        known.append("average")  # alone there is nothing to average, on GPUs no choice
    if unknown := plan.options.keys() - set(known):
        raise InvalidPlanError(
            f"strategy={plan.strategy}, replicas={plan.replicas}, devices={','.join(plan.devices)} "
            f"and options {_listed(unknown)}: use {', '.join(known)}"
        )
    schedule = plan.options.get("schedule", SCHEDULES[0])
    if schedule not in SCHEDULES:
        raise InvalidPlanError(
            f"strategy={plan.strategy} and schedule={schedule!r}: use {' or '.join(SCHEDULES)}"
        )
    average = plan.options.get("average", AVERAGES[0])
    if average not in AVERAGES:
        raise InvalidPlanError(
            f"strategy={plan.strategy} and average={average!r}: use {' or '.join(AVERAGES)}"
        )
    if schedule == "1f1b" and plan.micro_batches < stages:
        raise InvalidPlanError(
            f"strategy={plan.strategy}, schedule=1f1b, micro_batches={plan.micro_batches} and "
            f"stages={stages}: use at least as many micro-batches, or schedule=gpipe"
        )
    cut = str(plan.options.get("cut", "measured"))
    if cut not in ("measured", "paper"):
        first_layers = parse_cut(cut)
        if len(first_layers) + 1 != stages:
            raise InvalidPlanError(
                f"strategy={plan.strategy}, cut={cut} and stages={stages}: name {stages - 1} layers"
            )


def _listed(names: Iterable[str]) -> str:
    return ",".join(sorted(names))
