"""What must be known on a node before a search? The use case, and what can be tried."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from launch.cache import cache_folder
from launch.case_facts import CaseFacts
from launch.errors import InfeasiblePlanError
from launch.workers.reports import Progress
from planner.precision_offer import offer_precisions
from planner.report.units import format_bytes
from planner.search import find_obstacles
from planner.trial import TrialRunner
from planner.tune_request import TuneRequest, check_batch
from probes.hardware import Hardware

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
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
    on_progress: Callable[[Progress], None],
    warn: Say,
    note: Say,
) -> Prepared:
    """Load the use case, make its data ready, and find out what can be tried here.

    Args:
        request: What the user asks.
        node: This machine.
        runner: Runs what has to be run.
        on_progress: Hears how far the data are.
        warn: Takes what the user should know.
        note: Takes a line about the work.

    Raises:
        UseCaseError: The use case or its data are at fault.
        LaunchError: The process that loads it was ended from outside.
        InvalidPlanError: A batch is of more samples than there are.
        InfeasiblePlanError: The user named a strategy that cannot run here, or none can.
        NoPlanError: Only bf16 is allowed, and no form of it is good here.
    """
    facts = runner.describe(on_progress=on_progress, on_warning=warn)
    for warning in facts.warnings:
        warn(warning)
    check_batch(request, facts)
    _skip_what_cannot_run(request, facts, node, note)
    pixel_bytes = _say_pictures(request, facts, note)
    started = time.monotonic()
    if request.precision != "fp32":
        note("checking bf16 on the layers of the use case")
    facts, left_out = offer_precisions(facts, request, node, runner.check_precisions)
    for reason in left_out:
        warn(reason)
    checked_s = time.monotonic() - started
    return Prepared(facts=facts, pixel_bytes=pixel_bytes, checked_s=checked_s)


def _skip_what_cannot_run(
    request: TuneRequest, facts: CaseFacts, node: Hardware, note: Say
) -> None:
    """Say which strategies are not tried.

    Raises:
        InfeasiblePlanError: The user named one of them, or none is left.
    """
    obstacles = find_obstacles(request.strategies, facts, node)
    reasons = "; ".join(f"{name}: {obstacle}" for name, obstacle in obstacles.items())
    if len(obstacles) == len(request.strategies):
        raise InfeasiblePlanError(f"no strategy can run here: {reasons}")
    if obstacles and request.names_strategies:
        raise InfeasiblePlanError(f"{reasons}: leave it out of --strategies")
    for name, obstacle in obstacles.items():
        note(f"{name} is not tried: {obstacle}")


def _say_pictures(request: TuneRequest, facts: CaseFacts, note: Say) -> int | None:
    """Say what decoded pictures need; ``None`` where the search keeps none."""
    if not request.keeps_pictures or "cache" not in facts.inputs or facts.pixel_bytes is None:
        return None
    note(
        f"decoded pictures: {format_bytes(facts.pixel_bytes)} in {cache_folder()}, and as much "
        "memory for them to stay; --no-cache decodes the files in every epoch instead"
    )
    return facts.pixel_bytes
