"""Preparation of a search on a node: the use case's facts, and what can be tried."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from launch.case_facts import CaseFacts
from launch.errors import InfeasiblePlanError, InvalidPlanError
from launch.reports import Noted, Warned
from launch.strategies import strategy_names
from launch.system.cache import cache_folder
from planner.quantities import format_bytes
from planner.search.space import find_obstacles, uses_gpus
from planner.trials.reports import Listener
from planner.trials.runner import TrialRunner
from planner.tuning.precision_offer import offer_precisions
from planner.tuning.tune_request import TuneRequest, check_batch, check_budget
from probes.hardware import Hardware

OnMessage = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedCase:
    """A use case whose trials can begin."""

    facts: CaseFacts

    pixel_bytes: int | None
    """Size of the decoded pictures, ``None`` where the search keeps none."""

    checked_s: float
    """Time of the budget that the check of precisions has taken."""


def prepare(
    request: TuneRequest,
    node: Hardware,
    runner: TrialRunner,
    *,
    needs_all_strategies: bool,
    listener: Listener,
) -> PreparedCase:
    """Load the use case, make its data ready, and find out what can be tried here.

    Args:
        request: What the user asks.
        node: This machine.
        runner: Runs what has to be run.
        needs_all_strategies: Whether a strategy that the user named and that cannot run here is an
            error.
        listener: Receives how far the data are, warnings, and lines about the work.

    Raises:
        UseCaseError: The use case or its data are at fault.
        LaunchError: The process that loads it was ended from outside.
        InvalidPlanError: A batch is of more samples than there are, or the budget too small.
        InfeasiblePlanError: The user named a strategy that cannot run here, or none can.
        NoPlanError: Only bf16 is allowed, and no form of it is good here.
    """

    def note(message: str) -> None:
        listener(Noted(message=message))

    facts = runner.describe(listener)
    for warning in facts.warnings:
        listener(Warned(message=warning))
    check_batch(request, facts)
    facts = _with_time_for_budget(facts, request, node, runner, note)
    _check_strategies(request, facts, node, note, needs_all=needs_all_strategies)
    pixel_bytes = _note_decoded_images(request, facts, note)
    started = time.monotonic()
    if request.precision != "fp32":
        note("checking bf16 on the layers of the use case")
    facts, left_out = offer_precisions(facts, request, node, runner.check_precisions)
    for reason in left_out:
        listener(Warned(message=reason))
    checked_s = time.monotonic() - started
    return PreparedCase(facts=facts, pixel_bytes=pixel_bytes, checked_s=checked_s)


def _with_time_for_budget(
    facts: CaseFacts, request: TuneRequest, node: Hardware, runner: TrialRunner, note: OnMessage
) -> CaseFacts:
    """Check that the budget is enough; what speaks against it is timed once more first.

    A moment in which others compute, or files and libraries are read for the first time, makes a
    step look several times as long as it is: the smaller time counts.

    Raises:
        InvalidPlanError: The budget is too small.
        UnknownStrategyError: The user names a strategy that does not exist.
    """
    if uses_gpus(request.strategies or strategy_names(), facts, node):
        return facts  # the use case was timed on the CPU
    try:
        check_budget(request, facts, node)
    except InvalidPlanError:
        note("steps seem to take too long for --budget: they are timed once more")
        again_s = runner.describe(checked_digest=facts.digest).sample_s
        facts = replace(facts, sample_s=min(facts.sample_s, again_s or facts.sample_s))
        check_budget(request, facts, node)
    return facts


def _check_strategies(
    request: TuneRequest, facts: CaseFacts, node: Hardware, note: OnMessage, *, needs_all: bool
) -> None:
    """Say which strategies are not tried.

    Raises:
        InfeasiblePlanError: The user named one of them, or none is left.
    """
    strategies = request.strategies or strategy_names()
    obstacles = find_obstacles(strategies, facts, node)
    reasons = "; ".join(f"{name}: {obstacle}" for name, obstacle in obstacles.items())
    if len(obstacles) == len(strategies):
        raise InfeasiblePlanError(f"no strategy can run here: {reasons}")
    if obstacles and request.strategies is not None and needs_all:
        raise InfeasiblePlanError(f"{reasons}: leave it out of --strategies")
    if request.verbose:
        for name, obstacle in obstacles.items():
            note(f"{name} is not tried: {obstacle}")
    elif obstacles:
        note(f"not tried here: {', '.join(obstacles)} (--verbose says why)")


def _note_decoded_images(request: TuneRequest, facts: CaseFacts, note: OnMessage) -> int | None:
    """Say what decoded pictures need; ``None`` where the search keeps none."""
    if request.no_cache or "cache" not in facts.inputs or facts.pixel_bytes is None:
        return None
    note(
        f"decoded pictures: {format_bytes(facts.pixel_bytes)} in {cache_folder()}, and as much "
        "memory for them to stay; --no-cache decodes the files in every epoch instead"
    )
    return facts.pixel_bytes
