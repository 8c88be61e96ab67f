"""Among plans that may be as fast as each other the simplest is chosen."""

from __future__ import annotations

from dataclasses import replace

import pytest

from launch.plan import Plan
from planner.trials.comparison import PairNoise, compare_results
from planner.trials.result import Outcome, Role, TrialResult
from planner.tuning.choice import Candidate, choose, complexity
from probes.timing import Measurement

PLAIN = Plan(strategy="threads", node_batch=32, threads_per_process=2)


@pytest.mark.parametrize(
    ("simpler", "other"),
    [
        (PLAIN, replace(PLAIN, fused_optimizer=True)),
        (PLAIN, replace(PLAIN, input="cache")),
        (PLAIN, replace(PLAIN, allocator="jemalloc")),
        (replace(PLAIN, input="cache", fused_optimizer=True), replace(PLAIN, compile=True)),
        (replace(PLAIN, replicas=2), replace(PLAIN, processes=2)),
        (replace(PLAIN, processes=8, compile=True), replace(PLAIN, precision="bf16")),
        (
            replace(PLAIN, options={"schedule": "gpipe"}),
            replace(PLAIN, options={"schedule": "gpipe", "cut": "paper"}),
        ),
    ],
)
def test_plan_with_less_to_understand_and_to_go_wrong_is_simpler(simpler, other):
    assert complexity(simpler) < complexity(other)


OTHER = Plan(strategy="processes", node_batch=32, processes=2)


def finalists(turns_s: dict[Plan, tuple[float, ...]]) -> list[Candidate]:
    results = [
        TrialResult(
            plan=plan,
            role=Role.FINAL,
            outcome=Outcome.OK,
            measurement=Measurement(samples_s=times_s, rounds=tuple(range(len(times_s))), starts=2),
            elapsed_s=10.0,
        )
        for plan, times_s in turns_s.items()
    ]
    return Candidate.from_results(results)


def test_overlap_of_intervals_is_no_tie():
    """Where nothing shows two plans to be equal, the faster is chosen, not the simpler."""
    turns_s = {
        PLAIN: (1.08, 1.21, 0.99, 1.14, 0.97, 1.19, 1.03, 1.12),
        OTHER: (0.96, 1.0, 1.04, 0.9, 1.07, 1.0, 1.1, 0.93),
    }
    simpler, faster = candidates = finalists(turns_s)
    assert complexity(simpler.plan) < complexity(faster.plan)
    assert simpler.throughput.high > faster.throughput.low
    ratio = compare_results(simpler, faster, noise=PairNoise.of_results(candidates))
    assert ratio.low < 1 < ratio.high
    assert choose(candidates).plan == OTHER


@pytest.mark.parametrize(("longer", "chosen"), [(1.001, PLAIN), (1.03, OTHER)])
def test_simpler_plan_is_chosen_only_where_it_is_shown_to_be_within_a_percent(longer, chosen):
    assert choose(finalists({PLAIN: (longer,) * 12, OTHER: (1.0,) * 12})).plan == chosen


def test_single_turn_that_took_much_too_long_does_not_choose_the_slower_plan():
    """The story: the claim was that another plan is faster than the one that was chosen."""
    candidates = finalists({PLAIN: (1.0,) * 12, OTHER: (*(0.95,) * 11, 3.0)})
    assert choose(candidates).plan == OTHER
