"""Looks: where steps take long, plans are tried with a part of the batch they are chosen with."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from launch.case_facts import CaseFacts
from launch.plan import Plan
from planner.quantities import format_count, format_duration
from planner.tuning.entrant import LONG_STEP_S

_DIVISORS = (8, 4, 2)
"""Parts of the own batch that plans are looked at with."""

MOST_WHOLE_PLANS = 3
"""Plans that `choose_whole_plans` gives at most."""


def find_look_batch(case: CaseFacts, own_batch: int, cores: int) -> int | None:
    """Find the batch that plans on CPUs are looked at with where a step of their own takes long.

    ``T(n) = a + b n`` lets layout, memory format, allocator and optimizer be judged in a part of
    the time. Each core has a sample at least, and a step no less than a turn of one step takes:
    shorter ones show more of a step's fixed part than they save.

    Args:
        case: What is trained.
        own_batch: The smallest that a plan may be chosen with.
        cores: Of this machine.

    Returns:
        ``None`` where steps are short enough.
    """
    for divisor in _DIVISORS:
        batch = own_batch // divisor
        if batch >= cores and batch * case.sample_s >= LONG_STEP_S:
            return batch
    return None


def explain_looks(case: CaseFacts, look_batch: int, own_batch: int) -> str:
    """Say with which batch plans are tried first, and why."""
    step = format_duration(own_batch * case.sample_s)
    return (
        f"steps of {format_count(own_batch, 'sample')} take about {step} here: plans are tried "
        f"with {look_batch} first, and the best of them with {own_batch}"
    )


def choose_whole_plans(
    ranked: Sequence[Plan],
    case: CaseFacts,
    *,
    look_batch: int,
    measured: Collection[Plan],
    defaults: Plan,
) -> list[Plan]:
    """Choose the plans of the final, which have a whole batch, by what all looks together say.

    The best two. A plan that was only looked at stands for two with a whole batch, where it is the
    best: one with as many micro-batches, and one with micro-batches as small as those of the look,
    which caches may hold better.

    Args:
        ranked: Plans with whole batches, the best first; at least one.
        case: What is trained.
        look_batch: Batch of the looks.
        measured: Plans that were tried with a whole batch.
        defaults: PyTorch's defaults, which are raced anyway.
    """
    best = ranked[0]
    finalists = list(ranked[:2])
    cut = _cut_as_looked_at(best, look_batch, case)
    if best not in measured and cut is not None and cut not in finalists:
        # Evidence of a whole batch goes before a guess, and any other plan before a second of
        # PyTorch's defaults.
        is_last = best == defaults or finalists[-1] in measured
        finalists.insert(len(finalists) if is_last else 1, cut)
    return finalists


def _cut_as_looked_at(plan: Plan, look_batch: int, case: CaseFacts) -> Plan | None:
    """Give a plan with micro-batches as small as those of the look at it.

    ``None`` where it cannot be cut so, or would learn otherwise: micro-batches change what batch
    normalisation sees.
    """
    micro_batches = plan.micro_batches * (plan.node_batch // look_batch)
    fits = micro_batches * plan.replicas <= plan.node_batch
    return None if case.has_batch_norm or not fits else replace(plan, micro_batches=micro_batches)
