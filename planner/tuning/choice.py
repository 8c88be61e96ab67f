"""Choice among measured plans: the fastest; among equals, the simplest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

from launch.plan import Plan
from planner.trials.result import Outcome, Role, TrialResult
from probes.timing import Interval, Measurement

_FINALISTS = 2


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
        latest: dict[str, Candidate] = {}
        for result in results:
            if result.role is Role.SHARE:  # its batch may be one that the user does not want
                continue
            if candidate := cls._from_result(result, training_samples):
                latest[repr(result.plan)] = candidate
            elif _refutes(result):
                latest.pop(repr(result.plan), None)
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
            role=result.role,
            compile_s=result.compile_s,
        )


def _refutes(result: TrialResult) -> bool:
    """Tell whether a trial shows that its plan cannot be relied on.

    In the time that a finalist is given it was measured before: at its limit it got stuck.
    """
    if result.outcome is Outcome.TIME_LIMIT:
        return result.role is Role.FINAL
    return not result.outcome.has_times


def choose(candidates: Sequence[Candidate]) -> Candidate:
    """Choose the best of at least one candidate.

    A plan is faster than another only where the intervals lie apart; of those that may be as fast
    as the fastest, the simplest is chosen. Where finalists were measured again, the best is one
    of them, unless another plan's whole interval lies above theirs.
    """
    finalists = [c for c in candidates if c.role.is_unbiased]
    proven = max((c.amortized_throughput.high for c in finalists), default=0.0)
    field = finalists + [
        c for c in candidates if not c.role.is_unbiased and c.amortized_throughput.low > proven
    ]
    fastest = max(field, key=lambda candidate: candidate.amortized_throughput.median)
    tied = [c for c in field if c.amortized_throughput.high >= fastest.amortized_throughput.low]
    return min(tied, key=lambda c: (complexity(c.plan), -c.amortized_throughput.median))


def find_finalists(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Give those worth measuring again: the fastest, and the next if it may be as fast."""
    ranked = sorted(candidates, key=lambda candidate: -candidate.amortized_throughput.median)
    fastest = ranked[:1]
    return fastest + [
        c
        for c in ranked[1:_FINALISTS]
        if c.amortized_throughput.high >= fastest[0].amortized_throughput.low
    ]


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
