"""What does the user ask of the search, and which plans does that allow?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from launch.case_facts import CaseFacts
from launch.errors import InvalidPlanError
from launch.plan import PRECISIONS
from planner.choice import Candidate
from planner.result import Role, TrialResult

_BATCH_FACTORS = (1, 2, 4, 8)
_LARGEST_SHARE = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneRequest:
    """What the user asks of the search."""

    use_case: str
    data: str | None = None
    budget_s: float = 300.0
    trials: int | None = None
    """Search at most so many plans, beside the baseline and the finalists."""
    seed: int = 0
    batch_size: int | None = None
    """The only node batch to try, the baseline apart."""
    max_batch: int | None = None
    precision: str = "fp32"
    strategies: tuple[str, ...] = ()
    fresh: bool = False


def with_choices(
    case: CaseFacts, request: TuneRequest, *, least_time_per_sample_s: float
) -> CaseFacts:
    """Name the batches and precisions that may be tried.

    A batch is tried if judging it takes no more than a quarter of the budget.

    Args:
        case: What is trained.
        request: The user's limits.
        least_time_per_sample_s: Time that a trial takes at least for each sample of its batch.
    """
    default = case.default_batch
    largest = request.max_batch or _BATCH_FACTORS[-1] * default
    choices = [
        batch
        for batch in (default * factor for factor in _BATCH_FACTORS)
        if batch <= min(largest, case.train_samples)
        and least_time_per_sample_s * batch <= _LARGEST_SHARE * request.budget_s
    ]
    if request.batch_size is not None:
        choices = [request.batch_size]
    return replace(
        case,
        batch_choices=tuple(choices) or (min(default, largest),),
        precisions=PRECISIONS if request.precision == "auto" else (request.precision,),
    )


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


def choose_from(results: Sequence[TrialResult], request: TuneRequest) -> list[Candidate]:
    """Give the plans that these trials show the speed of and that the user's limits allow.

    The baseline is a candidate too: where nothing beats it, it is the best plan.
    """
    return Candidate.from_results([r for r in results if is_allowed(r, request)])


def is_allowed(result: TrialResult, request: TuneRequest) -> bool:
    """Whether the user's limits allow the plan of this trial to be the best."""
    batch = result.plan.node_batch
    if request.batch_size is not None and batch != request.batch_size:
        return False
    if request.max_batch is not None and batch > request.max_batch:
        return False
    return result.role is Role.BASELINE or result.plan.strategy in request.strategies
