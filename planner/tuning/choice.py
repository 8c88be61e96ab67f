"""Choice among measured plans: the fastest; of those shown to be as fast, the simplest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

from launch.plan import Plan
from planner.trials.comparison import TRIMMED, PairNoise, are_equal, compare_results, pair_logs
from planner.trials.drift import fit_log_times
from planner.trials.result import Outcome, Role, TrialResult
from probes.timing import Interval, Measurement

_FINALISTS = 3
_NEAR = 0.07
"""How far behind the fastest a plan may be to be raced again: a few turns tell no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A plan with the evidence that counts for it."""

    plan: Plan
    throughput: Interval
    """Samples per second of its steps."""
    amortized_throughput: Interval
    """Samples per second of a whole training, its compile time included. It decides."""
    measurement: Measurement
    peak_memory_bytes: int | None
    role: Role
    compile_s: float | None = None
    peak_device_memory_bytes: int | None = None

    @classmethod
    def from_results(
        cls, results: Sequence[TrialResult], training_samples: float = math.inf
    ) -> list[Candidate]:
        """Give each plan that was fully measured once, with its latest measurement.

        A plan that was measured again as a finalist has no other evidence: the first time it was
        picked for being fast, so by itself that time flatters. One that failed since then has none
        at all: what ended its trial would end the training.

        Args:
            results: Trials in the order in which they ended.
            training_samples: Samples of the training over which compile time is charged.
        """
        latest: dict[Plan, Candidate] = {}
        for result in results:
            if not result.role.is_for_choice:  # its batch may be one that the user does not want
                continue
            if candidate := cls._from_result(result, training_samples):
                latest[result.plan] = candidate
            elif _refutes(result):
                latest.pop(result.plan, None)
        return list(latest.values())

    @classmethod
    def _from_result(cls, result: TrialResult, training_samples: float) -> Candidate | None:
        throughput = result.throughput_samples_per_s()
        amortized = result.throughput_samples_per_s(training_samples)
        if result.outcome is not Outcome.OK or throughput is None or amortized is None:
            return None
        assert result.measurement is not None
        return cls(
            plan=result.plan,
            throughput=throughput,
            amortized_throughput=amortized,
            measurement=result.measurement,
            peak_memory_bytes=result.peak_memory_bytes,
            peak_device_memory_bytes=result.peak_device_memory_bytes,
            role=result.role,
            compile_s=result.compile_s,
        )


def _refutes(result: TrialResult) -> bool:
    """Tell whether a trial shows that its plan cannot be relied on.

    In the time that a finalist is given it was measured before: at its limit it got stuck.
    """
    if result.outcome is Outcome.TIME_LIMIT:
        return result.role.was_started_afresh
    return result.outcome.has_failed


def choose(candidates: Sequence[Candidate]) -> Candidate:
    """Choose the best of at least one candidate.

    Intervals that overlap make no tie: where two plans are not shown to be within 1 % of each
    other, by turns side by side, the faster one is chosen. Only what rounds must be shown to be
    faster. Where plans were raced again in a final, the best is one of them, and turns of the final
    alone rank them: those of the search, in which each was picked for being fast, flatter.
    """
    again = [c for c in candidates if c.role.was_started_afresh]
    beside = [
        c for c in candidates if c.role is Role.DEFAULTS and any(pair_logs(c, f) for f in again)
    ]
    finalists = again + beside if again else list(candidates)
    exact = [c for c in finalists if c.plan.precision == "fp32"]
    noise, fastest = PairNoise.of_results(candidates), _rank_side_by_side(finalists)[0]
    if exact and fastest.plan.precision != "fp32":
        fastest_exact = _rank_side_by_side(exact)[0]
        if not _is_faster(fastest, fastest_exact, noise):
            finalists, fastest = exact, fastest_exact
    equal = [
        c for c in finalists if c is fastest or are_equal(compare_results(c, fastest, noise=noise))
    ]
    return min(equal, key=lambda c: (complexity(c.plan), -c.amortized_throughput.median))


def find_runner_up(candidates: Sequence[Candidate], best: Candidate) -> Candidate | None:
    """Give the fastest of the others that was raced against the best."""
    others = [c for c in candidates if c.plan != best.plan and pair_logs(best, c)]
    return _rank_side_by_side(others)[0] if others else None


def rank_by_rate(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Order candidates by their rates, compile time included, the fastest first."""
    return sorted(candidates, key=lambda c: -c.amortized_throughput.median)


def _rank_side_by_side(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Order candidates by the rounds that they ran in together, compile time included."""
    log_times = fit_log_times(candidates, trimmed=TRIMMED)  # as in the ratios that are claimed

    def time_s(one: Candidate) -> float:
        amortized_s = 1 / one.amortized_throughput.median
        if (log := log_times.get(one.plan)) is None:
            return amortized_s
        return math.exp(log) + amortized_s - 1 / one.throughput.median

    return sorted(candidates, key=time_s)


def _is_faster(candidate: Candidate, other: Candidate, noise: PairNoise) -> bool:
    """Tell whether a candidate is shown to be faster; by their rates where they never met."""
    ratio = compare_results(other, candidate, noise=noise)
    if ratio is None:
        return candidate.amortized_throughput.low > other.amortized_throughput.high
    return ratio.low > 1


def find_finalists(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Give those worth racing again: the fastest two, and the simplest of those that come near."""
    ranked = rank_by_rate(candidates)
    least = (1 - _NEAR) * ranked[0].amortized_throughput.median
    near = [c for c in ranked if c.amortized_throughput.median >= least]
    simplest = min(near, key=lambda c: complexity(c.plan))
    first = near[:_FINALISTS]
    return first if simplest in first else [*first[:-1], simplest]


def complexity(plan: Plan) -> tuple[bool, int, int, bool, int]:
    """Order plans by how much there is to understand and to go wrong.

    What keeps the numerics comes first: rounding must pay. Then count processes, model replicas,
    whether another program than the use case's own is run (a compiled or a recorded one), and
    the settings away from their defaults.
    """
    plain = Plan(strategy=plan.strategy, node_batch=plan.node_batch)
    skipped = {"strategy", "node_batch", "devices", "processes", "replicas", "precision"}
    changed = sum(
        getattr(plan, f.name) != getattr(plain, f.name)
        for f in fields(plan)
        if f.name not in skipped
    )
    changed += len(plan.options) - bool(plan.options)  # each is a setting of its own
    is_rounded, is_rewritten = plan.precision != "fp32", plan.compile or plan.cuda_graph
    return is_rounded, plan.processes, plan.replicas, is_rewritten, changed
