"""Ranking by the time to a loss: a search that is shown the time of a sample's worth.

Nothing in a search knows what it minimises. Here the times of steps are divided by the worth of a
sample in the plan's batch before the search sees them, so that what it takes for the time of a
sample is the time of what a sample is worth in the use case's own batch. The store gets the times
as they were.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from launch.reports import StepDone
from planner.trials.contender import Contender, StartContender
from planner.trials.result import TrialResult
from planner.tuning.findings import Findings, TrialStore
from planner.tuning.study import AddedTrial, EarlierTrials, LaterTrials, Study
from probes.disturbance import Disturbance

Worth = Callable[[int], float]
"""Worth of a sample in a batch of so many, against one in the use case's own batch."""


def start_by_worth(start: StartContender, worth: Worth) -> StartContender:
    """Give what starts plans whose steps count by the worth of their samples."""
    return lambda plan: _WeighedContender(start(plan), worth(plan.node_batch))


def in_real_time(findings: Findings, worth: Worth) -> Findings:
    """Give findings with the times of their steps as they were."""
    return findings.with_results(
        [_scaled(result, worth(result.plan.node_batch)) for result in findings.results]
    )


class WeighedTrials:
    """A store of trials whose reader sees their times by the worth of their samples."""

    def __init__(self, trials: TrialStore, worth: Worth) -> None:
        self._trials = trials
        self._worth = worth

    def begin_search(self, study: Study, *, fresh: bool) -> EarlierTrials:
        """Give the study, without trials of other machines, whose worth is not known."""
        found = self._trials.begin_search(study, fresh=fresh)
        results = tuple(map(self._weighed, found.results))
        return replace(found, results=results, similar=())

    def add_trial(self, study_id: int, result: TrialResult) -> AddedTrial:
        """Keep a trial with the times that its steps took."""
        worth = self._worth(result.plan.node_batch)
        return self._trials.add_trial(study_id, _scaled(result, worth))

    def later_trials(self, study_id: int, after: int) -> LaterTrials:
        """Give what others have added."""
        found = self._trials.later_trials(study_id, after)
        own = tuple(replace(one, result=self._weighed(one.result)) for one in found.own)
        return replace(found, own=own, similar=())

    def _weighed(self, result: TrialResult) -> TrialResult:
        return _scaled(result, 1 / self._worth(result.plan.node_batch))


class _WeighedContender:
    """A plan whose steps count by the worth of their samples."""

    def __init__(self, contender: Contender, worth: float) -> None:
        self._contender = contender
        self._worth = worth

    @property
    def peak_memory_bytes(self) -> int | None:
        return self._contender.peak_memory_bytes

    @property
    def compile_s(self) -> float | None:
        return self._contender.compile_s

    @property
    def disturbance(self) -> Disturbance | None:
        return self._contender.disturbance

    def make_steps(self, count: int, *, time_limit_s: float) -> Sequence[StepDone]:
        steps = self._contender.make_steps(count, time_limit_s=time_limit_s)
        return [
            replace(step, time_s=step.time_s / self._worth, input_s=step.input_s / self._worth)
            for step in steps
        ]

    def close(self) -> None:
        self._contender.close()


def _scaled(result: TrialResult, factor: float) -> TrialResult:
    """Give a trial with its times multiplied."""
    known = result.measurement
    if known is None:
        return result
    measurement = replace(
        known,
        warmup_s=tuple(factor * time_s for time_s in known.warmup_s),
        samples_s=tuple(factor * time_s for time_s in known.samples_s),
        spent_s=None if known.spent_s is None else factor * known.spent_s,
    )
    return replace(result, measurement=measurement)
