"""Training of a point: the workers of one batch on one device setting, which take turns."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from launch.plan import Plan
from launch.rank.epoch import EpochStatistics
from launch.reports import EpochDone, Report, StepDone, StepsFinished, Validated
from planner.sweeps.sweep_record import SweepPoint
from planner.trials.contender import RunningContender, TrialFailedError
from planner.trials.result import Outcome
from planner.trials.runner import TrialRunner
from probes.timing import DisturbedTurn, Measurement

_LEAST_TURN_S = 0.5
"""Shorter turns would be spent in the switch from one setting to the next."""

_LEAST_TURNS, _MOST_TURNS = 24, 240
"""Of a point, where it has so many steps: their number decides how narrow intervals are. More would
only be stored."""

_UNKNOWN_LIMIT_S = 3600.0
"""For what nothing is known of yet: the first step, and the first validation."""

_LEAST_LIMIT_S, _SLOWNESS = 60.0, 20.0
"""As of a launch: a step that takes 20 times as long as others, and a minute at least, hangs."""

_WARMUP_TURNS = 1
"""Turns that do not count: in the first one memory is touched for the first time."""


@dataclass(slots=True)
class PointTraining:
    """One point of a sweep while it is trained: the whole training of a launch, in turns."""

    setting: int
    """Number of its device setting."""

    plan: Plan
    samples: int
    """Of an epoch."""

    epochs: int

    contender: RunningContender | None = None
    steps_done: int = 0
    step_s: float = 0.0
    """Of the last turn."""

    turns_s: dict[int, float] = field(default_factory=dict)
    """Mean step of a whole batch in each turn that counts, by round."""

    warmup_s: list[float] = field(default_factory=list)
    disturbed: list[DisturbedTurn] = field(default_factory=list)
    epochs_done: list[EpochDone] = field(default_factory=list)
    start_s: float | None = None
    elapsed_s: float = 0.0
    failure: TrialFailedError | None = None
    _statistics: EpochStatistics = field(init=False)

    def __post_init__(self) -> None:
        self._statistics = EpochStatistics(self.plan.processes, self.plan.node_batch)

    @property
    def steps_per_epoch(self) -> int:
        """Steps of an epoch; the last one may have fewer samples."""
        return -(-self.samples // self.plan.node_batch)

    @property
    def steps_left(self) -> int:
        """Steps that are still to be made."""
        return 0 if self.failure else self.steps_per_epoch * self.epochs - self.steps_done

    def start(self, runner: TrialRunner) -> None:
        """Start its workers and make the first step, which does not count."""
        started = time.monotonic()
        try:
            self.contender = runner.start(self.plan, epochs=self.epochs, on_report=self._take)
            self._make_steps(1, _UNKNOWN_LIMIT_S)
        except TrialFailedError as failure:
            self._fail(failure)
        self.start_s = self.elapsed_s = time.monotonic() - started

    def take_turn(self, number: int, steps: int, *, cores: int) -> None:
        """Make so many steps, with the validations that fall between them."""
        assert self.contender is not None
        try:
            done = self._make_steps(steps, self._limit_s(steps))
        except TrialFailedError as failure:
            self._fail(failure)
            return
        samples, time_s = sum(step.samples for step in done), sum(step.time_s for step in done)
        self.step_s = time_s * self.plan.node_batch / samples
        if number < _WARMUP_TURNS:
            self.warmup_s.append(self.step_s)
            return
        self.turns_s[number] = self.step_s
        found = self.contender.disturbance
        if found is not None and found.is_disturbed(self.plan.threads, cores):
            turn = DisturbedTurn(round=number, disturbance=found, was_repeated=False)
            self.disturbed.append(turn)

    def finish(self) -> None:
        """Let it validate the last epoch and end."""
        if self.contender is None or self.failure is not None:
            return
        started = time.monotonic()
        try:
            self.contender.finish(time_limit_s=_UNKNOWN_LIMIT_S)
        except TrialFailedError as failure:
            self._fail(failure)
        self.elapsed_s += time.monotonic() - started

    def close(self) -> None:
        """End its workers."""
        if self.contender is not None:
            self.contender.close()

    def make_point(self, side_by_side: str, now: datetime) -> SweepPoint:
        """Make the point that is stored."""
        measurement = None
        if self.turns_s:
            measurement = Measurement(
                warmup_s=tuple(self.warmup_s),
                samples_s=tuple(self.turns_s.values()),
                rounds=tuple(self.turns_s),
                disturbed=tuple(self.disturbed),
            )
        failure, contender = self.failure, self.contender
        return SweepPoint(
            created_at=now,
            plan=self.plan,
            setting=self.setting,
            side_by_side=side_by_side,
            outcome=Outcome.OK if failure is None else failure.outcome,
            measurement=measurement,
            epochs=tuple(self.epochs_done),
            peak_memory_bytes=None if contender is None else contender.peak_memory_bytes,
            start_s=self.start_s,
            elapsed_s=self.elapsed_s,
            reason=None if failure is None else failure.reason,
            log_tail=None if failure is None else failure.log_tail,
        )

    def _make_steps(self, count: int, time_limit_s: float) -> Sequence[StepDone]:
        assert self.contender is not None
        started = time.monotonic()
        done = self.contender.make_steps(count, time_limit_s=time_limit_s)
        self.elapsed_s += time.monotonic() - started
        self.steps_done += len(done)
        return done

    def _limit_s(self, steps: int) -> float:
        left = self.steps_per_epoch - self.steps_done % self.steps_per_epoch
        validates = _UNKNOWN_LIMIT_S if steps >= left else 0.0
        return max(_LEAST_LIMIT_S, _SLOWNESS * steps * self.step_s) + validates

    def _fail(self, failure: TrialFailedError) -> None:
        if failure.outcome is Outcome.TIME_LIMIT:
            failure.reason = "no step for too long: it hangs"
        self.failure = failure
        self.close()

    def _take(self, report: Report) -> None:
        match report:
            case StepDone():
                self._statistics.add_step(report)
            case StepsFinished():
                self._statistics.add_finish(report)
            case Validated():
                if epoch := self._statistics.add_validation(report):
                    # Its clock also ran while others had their turns.
                    self.epochs_done.append(replace(epoch, elapsed_s=None))


def choose_turn(trainings: Sequence[PointTraining]) -> int:
    """Choose how many steps each turn of these trainings of one batch has: the same for all."""
    total = max(one.steps_per_epoch * one.epochs for one in trainings)
    fastest_s = min((one.step_s for one in trainings if one.step_s), default=0.0)
    by_time = round(_LEAST_TURN_S / fastest_s) if fastest_s else 1
    return max(1, -(-total // _MOST_TURNS), min(by_time, -(-total // _LEAST_TURNS)))
