"""Request of a search: what the user wants, and which plans that allows."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from launch.case_facts import CaseFacts
from launch.errors import InvalidPlanError
from launch.plan import Plan
from launch.workload import Workload
from planner.plans.objective import OBJECTIVES, TIME_TO_LOSS
from planner.quantities import format_count
from planner.trials.result import Role, TrialResult
from planner.tuning.looks import find_look_batch
from probes.hardware import Hardware

_BATCH_FACTORS = (1, 2, 4, 8, 16, 32, 64, 128)
"""Batches / the default one. With 64 times it at most, searches of imagined machines with 4 GPUs
ended 8 % behind the best plan (`bench/search.py`, 2026-11-27)."""

_DIVISORS = (8, 4, 2)
"""Of the default batch, where a loss is searched for: per sample, a small batch gets farther."""

_LEAST_FACTOR, _FACTOR_OF_A_CORE = 8, 4
"""Largest batch on a CPU / the default one: at least, and for each core."""
_LEAST_STEPS, _LEAST_STEPS_AFTER_LOOKS, ENOUGH_STEPS = 4, 14, 18
"""Steps in which two plans get warm and have two turns each: 8, of which a plan that is better than
PyTorch's defaults needs half the time. Where plans are looked at first, the final begins from
nothing, and has seven tenths of the budget. And what a search is told to have at least."""

_MOST_LOADERS, _FASTER = 8, 2.0
"""Loading processes of a worker: at most on a node with fewer cores; and by how much a plan may
compute faster than PyTorch's defaults, and need more of them."""

_LEAST_READING = 0.01
"""Part of a step that reading must take for loading processes to be tried. They have their worker's
cores, so that they can hide what reading takes, and no more."""

LARGEST_SHARE = 0.25
"""Largest share of the budget that judging one plan may take."""

_COMPILING_BUDGET_S = 360.0
"""Least budget in which plans are compiled: AlexNet takes most of a minute where its kernels
are not in the cache yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneRequest:
    """What the user asks of the search."""

    workload: Workload
    budget_s: float = 300.0
    trials: int | None = None
    """Search at most so many plans, beside the baseline and the finalists."""
    batch_size: int | None = None
    """The only node batch to try, the baseline apart."""
    max_batch: int | None = None
    precision: str = "fp32"
    no_cache: bool = False
    """Decode the files in every epoch, and put no decoded pictures into the cache."""
    strategies: tuple[str, ...] | None = None
    """Try only these; ``None``: all."""
    with_baseline: bool = False
    """Whether the run on one core is what the final leaves out last, however long its steps are."""
    keeps_plan: bool = True
    """Whether the best plan is stored, for launches to choose; without, the trials alone are."""
    fresh: bool = False
    """Begin a new study, without the trials of earlier searches."""
    verbose: bool = False
    """Whether the user wants to know why a strategy is not tried."""
    epochs: int = 10
    """Of the training that a plan is for: compile time is charged once over so many."""
    objective: str = OBJECTIVES[0]
    """What plans are ranked by, one of `planner.plans.objective.OBJECTIVES`."""
    lr_scaling: str = "none"
    """How the learning rate goes with the batch, as in the plan that is stored."""
    target_loss: float | None = None
    """Validation loss to which the time is predicted."""
    target_accuracy: float | None = None
    """Accuracy to which it is."""


def limit_choices(
    case: CaseFacts,
    request: TuneRequest,
    *,
    least_time_per_sample_s: float,
    cores: int = 1,
    input_share: float | None = None,
) -> CaseFacts:
    """Name the batches, inputs and numbers of loading processes that may be tried.

    On a CPU a batch is tried if judging it takes no more than a quarter of the budget; what a GPU
    takes is not known before it is tried. More loading processes than usual are tried where
    PyTorch's defaults wait for their input for more than about 60 % of a step, and none where
    reading a sample takes next to nothing: their trials are the longest of all, for what they read
    ahead has to be used up first.

    Args:
        case: What is trained.
        request: The user's limits.
        least_time_per_sample_s: Time that a trial takes at least on a CPU for each sample of
            its batch.
        cores: Of the node: many want a larger batch to have enough to do each.
        input_share: Part of the time in which PyTorch's defaults wait for their input; ``None``
            where that is not known, or no reason to leave plans out.
    """
    asked = () if request.batch_size is None else (request.batch_size,)
    least = (_smallest_wanted(case, request),)
    affordable = tuple(
        batch
        for batch in _batches(case, request)
        if batch <= max(_LEAST_FACTOR, _FACTOR_OF_A_CORE * cores) * case.default_batch
        if least_time_per_sample_s * batch <= LARGEST_SHARE * request.budget_s
    )
    inputs = ("files",) if request.no_cache else case.inputs
    # Decoded pictures are read faster than processes could send them.
    waits = (input_share or 0.0) if inputs == ("files",) else 0.0
    loaders = min(_FASTER * waits / max(1 - waits, 0.01), max(_MOST_LOADERS, cores))
    most_loaders = max(case.most_loaders, math.ceil(loaders))
    return replace(
        case,
        can_compile=case.can_compile and request.budget_s >= _COMPILING_BUDGET_S,
        batch_choices=asked or affordable or least,
        gpu_batch_choices=asked or _batches(case, request) or least,
        inputs=inputs,
        most_loaders=0 if _reads_in_no_time(case, input_share) else most_loaders,
    )


def _reads_in_no_time(case: CaseFacts, input_share: float | None) -> bool:
    """Tell whether reading takes too little of a step for loading processes to gain by it.

    A core must have been seen to read a file that is in memory in so little of a sample's time, and
    PyTorch's defaults to wait so little for the files where they are.
    """
    if case.read_s is None or input_share is None:
        return False
    return case.read_s < _LEAST_READING * case.sample_s and input_share < _LEAST_READING


def _batches(case: CaseFacts, request: TuneRequest) -> tuple[int, ...]:
    """Give multiples of the default batch, up to all samples and the user's limit.

    Parts of it too, where they may be sooner at a loss: with them fewer samples a second are made.
    """
    own, is_to_loss = case.default_batch, request.objective == TIME_TO_LOSS
    largest = min(case.train_samples, request.max_batch or case.train_samples)
    smaller = [own // part for part in _DIVISORS if is_to_loss and own >= part]
    batches = [*smaller, *(own * factor for factor in _BATCH_FACTORS)]
    return tuple(batch for batch in batches if batch <= largest)


def least_batch(case: CaseFacts, request: TuneRequest) -> int:
    """Give the smallest batch that a plan may be chosen with.

    A smaller one than the use case's own changes what is learned, and makes no step cheaper by
    sample; 1 where the time to a loss is searched for, which it may shorten, and for scripts, whose
    batches are all named by the user.
    """
    if request.objective == TIME_TO_LOSS or not case.sample_s:
        return 1
    return _smallest_wanted(case, request)


def _smallest_wanted(case: CaseFacts, request: TuneRequest) -> int:
    return request.batch_size or min(case.default_batch, request.max_batch or case.default_batch)


def check_batch(request: TuneRequest, case: CaseFacts) -> None:
    """Check that a step can have as many samples as the user asks for.

    Raises:
        InvalidPlanError: There are fewer.
    """
    asked = {"--batch-size": request.batch_size, "--max-batch": request.max_batch}
    for option, batch in asked.items():
        if batch is not None and batch > case.train_samples:
            raise InvalidPlanError(
                f"{option} {batch} and train_samples={case.train_samples}: "
                f"use at most {option} {case.train_samples}"
            )


def check_budget(request: TuneRequest, case: CaseFacts, node: Hardware) -> None:
    """Check that the budget holds a comparison of two plans at all, where all are on CPUs.

    Raises:
        InvalidPlanError: It does not; the message names one that does.
    """
    batch = _smallest_wanted(case, request)
    look_batch = find_look_batch(case, least_batch(case, request), node.cpu.usable_cores)
    has_looks = request.trials != 0 and look_batch is not None
    least = _LEAST_STEPS_AFTER_LOOKS if has_looks else _LEAST_STEPS
    step_s = batch * case.sample_s
    if least * step_s > request.budget_s:
        raise InvalidPlanError(
            f"--budget {request.budget_s:g}s: steps of {format_count(batch, 'sample')} take about "
            f"{step_s:.0f} s here, so that no two plans can be compared: use "
            f"--budget {math.ceil(ENOUGH_STEPS * step_s / 60)}m, or a smaller --batch-size"
        )


def is_allowed(result: TrialResult, request: TuneRequest) -> bool:
    """Whether the user's limits allow the plan of this trial to be the best.

    The baseline is held against the batches alone.
    """
    if result.role is not Role.BASELINE:
        return allows(request, result.plan)
    return _allows_batch(request, result.plan.node_batch)


def allows(request: TuneRequest, plan: Plan) -> bool:
    """Whether a plan is within the user's limits."""
    is_rounded = plan.precision != "fp32"
    if is_rounded != (request.precision == "bf16") and request.precision != "auto":
        return False
    if plan.input != "files" and request.no_cache:
        return False
    if request.strategies is not None and plan.strategy not in request.strategies:
        return False
    return _allows_batch(request, plan.node_batch)


def _allows_batch(request: TuneRequest, batch: int) -> bool:
    if request.batch_size is not None and batch != request.batch_size:
        return False
    return request.max_batch is None or batch <= request.max_batch
