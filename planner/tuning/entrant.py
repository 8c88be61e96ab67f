"""Entrant of a race: a plan with its processes, and what its turns have shown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import TYPE_CHECKING

from launch.plan import Plan
from launch.reports import StepDone
from planner.trials.contender import Contender, TrialFailedError
from planner.trials.result import Outcome, Role, TrialResult
from probes.timing import DisturbedTurn, Measurement

if TYPE_CHECKING:
    from planner.search.plan_search import Proposal  # which loads Optuna

_LEAST_TURN_S = 0.25
"""Shorter turns would be spent in the switch from one plan to the next."""

LONG_STEP_S = 0.5
"""A step that takes so long is a turn by itself."""

_LEAST_WARMUP_STEPS = 2
_PREFETCHED = 2
"""Batches that torch's DataLoader lets each of its processes read ahead."""

_INPUT_BOUND = 0.05
"""Part of the time in which a plan waits for its input, from which on it counts as bound by it."""

NO_TURN = "no turn until the budget ended: raise --budget"
"""Reason of a plan that was started and never timed."""


class LastBatches:
    """Smaller last batches of epochs: by how much they make a sample slower, by node batch.

    Only scripts have them. Whole epochs alone show it, for of fewer steps too many or none are
    small. What plans with a batch have shown together holds for each of them: turns are compared
    by whole batches, and a plan is not ahead because its turns had no small one yet.
    """

    def __init__(self) -> None:
        self._factors: dict[int, list[float]] = {}

    def add_epoch(self, batch: int, steps: Sequence[StepDone]) -> None:
        """Add the steps of an epoch with a node batch."""
        whole_s = [step.time_s for step in steps if step.samples == batch]
        samples = sum(step.samples for step in steps)
        if whole_s and samples:
            sample_s = sum(step.time_s for step in steps) / samples
            self._factors.setdefault(batch, []).append(sample_s / (fmean(whole_s) / batch))

    def factor(self, batch: int) -> float:
        """Give the time of a sample / that of one in a whole batch; 1 before an epoch was seen."""
        # A validation that records gradients seems to train samples, in no time of a step.
        return max(1.0, fmean(self._factors.get(batch, [1.0])))


@dataclass(slots=True)
class Entrant:
    """A plan in a race: its processes, and the turns that it has had."""

    plan: Plan
    role: Role
    contender: Contender
    last_batches: LastBatches = field(default_factory=LastBatches)
    """What all plans of the race have shown of them."""

    worth: float = 1.0
    """By what the times of its steps are divided."""

    proposal: Proposal | None = None
    """By which the search proposed it; ``None`` where something else did."""

    turns_s: dict[int, float] = field(default_factory=dict)
    """Mean step of a whole batch in each turn, by round."""

    disturbed: list[DisturbedTurn] = field(default_factory=list)
    """Turns that others disturbed, those that do not count any more included."""

    warmup_s: list[float] = field(default_factory=list)
    elapsed_s: float = 0.0
    """Time that it took from the others: its start, its warm-up and its turns."""

    spent_s: float = 0.0
    """Time of its steps alone."""

    starts: int = 1
    is_open: bool = True
    is_parked: bool = False
    """Whether its processes are ended until its next turn, so that others have its memory."""

    stored_turns: int | None = None
    """Turns that it had when its result was kept, as the times; ``None`` where it was not yet."""

    stored_failure: TrialFailedError | None = None
    stored_s: float = 0.0
    stored_spent_s: float = 0.0

    failure: TrialFailedError | None = None
    steps: int = 0
    """Of its turns."""

    _epoch: list[StepDone] | None = None
    """Steps of its turns since an epoch's last batch, which was smaller; ``None`` before one."""
    _last_step: StepDone | None = None
    _turn_steps: int = 0
    """Of its last round: of a turn that was taken again, too."""
    _warmup_input: tuple[float, float] = (0.0, 0.0)
    _inputs: dict[int, tuple[float, float]] = field(default_factory=dict)
    """Time in which the steps of each turn waited for samples, and their time, by round."""
    _read_ahead: list[int] = field(default_factory=list)
    _used_up: int = 0
    _peak_bytes: int | None = None
    _peak_device_bytes: int | None = None
    _compile_s: float | None = None

    @property
    def step_s(self) -> float:
        """Time of a step, as far as it is known; 0 before the first one."""
        return fmean(list(self.turns_s.values())[-3:] or self.warmup_s[-1:] or [0.0])

    @property
    def turn_s(self) -> float:
        """Time of its next turn by the clock, whatever its steps count as."""
        return self.worth * self.step_s * self.steps_of_turn()

    def steps_of_turn(self) -> int:
        """Give how many steps its next turn has.

        A plan that waits for its loader processes has its batches in bursts, as many as there are
        processes: its turn is longer than what they can have read ahead.
        """
        steps = steps_of_turn(self.step_s)
        if self.is_input_bound():
            steps = max(steps, _PREFETCHED * self.plan.loader_workers + 1)
        return steps

    def add_warmup(self, steps: Sequence[StepDone]) -> None:
        """Take note of steps before the first turn."""
        self.warmup_s += [step.time_s for step in steps]
        self.spent_s += sum(step.time_s for step in steps)
        self._warmup_input = _sum_input(steps[-1:])
        self._read_ahead = [steps[-1].read_ahead]
        self._last_step = steps[-1]

    def add_turn(self, number: int, steps: Sequence[StepDone]) -> None:
        """Take note of a turn: of the mean time of a whole batch in it.

        Of many steps the first, which finds cold caches, does not count. A turn that it has had in
        this round already does not count any more.
        """
        before = self._turn_steps if number in self.turns_s else 0
        self.discard_turn(number)
        batch = self.plan.node_batch
        whole = [step for step in steps if step.samples == batch]
        self._note_epochs(steps)
        counted = whole or steps
        counted = counted[1:] if len(counted) > 3 else counted
        samples = fmean(step.samples for step in counted) or batch
        self.turns_s[number] = fmean(step.time_s for step in counted) * (batch / samples)
        self._inputs[number] = _sum_input(steps)
        self.steps, self._turn_steps = self.steps + len(steps), before + len(steps)
        self.spent_s += sum(step.time_s for step in steps)
        self._read_ahead.append(steps[-1].read_ahead)

    def was_disturbed(self, number: int) -> bool:
        """Tell whether others disturbed its turn in a round, as far as it counts."""
        return any(turn.round == number and not turn.was_repeated for turn in self.disturbed)

    def discard_turn(self, number: int) -> None:
        """Let its turn in a round not count: it has another one."""
        self.turns_s.pop(number, None)
        self._inputs.pop(number, None)
        self.disturbed = [
            replace(turn, was_repeated=True) if turn.round == number else turn
            for turn in self.disturbed
        ]

    def count_as_warmup(self, number: int) -> None:
        """Let its turn in a round show nothing of its speed."""
        if number in self.turns_s:
            self.warmup_s.append(self.turns_s[number])
            self.discard_turn(number)
            self.steps -= self._turn_steps
            self._read_ahead = self._read_ahead[-1:]

    def begin_again(self, again: Entrant) -> None:
        """Go on with the processes of another start."""
        self._used_up += self._read_ahead_used()
        self._read_ahead = again._read_ahead
        self._peak_bytes, self._compile_s = self.peak_memory_bytes, self.compile_s
        self._peak_device_bytes = self.peak_device_memory_bytes
        self._epoch, self._last_step = None, again._last_step
        self.contender = again.contender
        self.warmup_s = self.warmup_s or again.warmup_s

    @property
    def peak_memory_bytes(self) -> int | None:
        """Highest memory over all starts."""
        return max(self._peak_bytes or 0, self.contender.peak_memory_bytes or 0) or None

    @property
    def peak_device_memory_bytes(self) -> int | None:
        """Highest memory of its GPU over all starts; a step tells that of its own start."""
        last_bytes = self._last_step.peak_device_memory_bytes if self._last_step else None
        return max(self._peak_device_bytes or 0, last_bytes or 0) or None

    @property
    def compile_s(self) -> float | None:
        """Longest time to compile over all starts: later ones find the kernels in the cache."""
        known = [t for t in (self._compile_s, self.contender.compile_s) if t is not None]
        return max(known, default=None)

    def input_share(self) -> float:
        """Give the part of the time in which steps waited for samples, of the turns that count.

        Before one does, it is that of the last step of the warm-up.
        """
        counted = list(self._inputs.values()) or [self._warmup_input]
        timed_s = sum(steps_s for _, steps_s in counted)
        return sum(input_s for input_s, _ in counted) / timed_s if timed_s else 0.0

    def is_input_bound(self) -> bool:
        """Tell whether it waits for its loader processes, and has its batches in bursts."""
        return bool(self.plan.loader_workers) and self.input_share() > _INPUT_BOUND

    def read_ahead_factor(self) -> float:
        """Give by how much steps would take longer without what was read before the first turn.

        Batches that lay ready then, and are used up now, were not loaded in the time of the turns.
        """
        used_up = self._used_up + self._read_ahead_used()
        return self.steps / max(1, self.steps - used_up) if self.steps else 1.0

    def small_batch_factor(self) -> float:
        """Give by how much a sample takes longer, on average, than one of a whole batch.

        Turns are of whole batches, because one with a smaller one differs too much from its
        neighbours.
        """
        return self.last_batches.factor(self.plan.node_batch)

    def _note_epochs(self, steps: Sequence[StepDone]) -> None:
        """Take note of epochs: each begins here with its smaller batches, one or some in a row."""
        batch = self.plan.node_batch
        for step in steps:
            last, self._last_step = self._last_step, step
            if last is not None and step.step != last.step + 1:  # a script was started again
                self._epoch = None
            elif step.samples < batch and not (last is not None and last.samples < batch):
                if self._epoch:
                    self.last_batches.add_epoch(batch, self._epoch)
                self._epoch = []
            if self._epoch is not None:
                self._epoch.append(step)

    def _read_ahead_used(self) -> int:
        return max(0, self._read_ahead[0] - self._read_ahead[-1]) if self._read_ahead else 0

    def measurement(self) -> Measurement | None:
        """Give its times; those of the warm-up where it had no turn."""
        if not self.turns_s:
            if not self.warmup_s:
                return None
            *before, last = self.warmup_s
            return Measurement(warmup_s=tuple(before), samples_s=(last,), spent_s=self.spent_s)
        factor = self.read_ahead_factor() * self.small_batch_factor()
        return Measurement(
            warmup_s=tuple(self.warmup_s),
            samples_s=tuple(time_s * factor for time_s in self.turns_s.values()),
            rounds=tuple(self.turns_s),
            starts=self.starts,
            spent_s=self.spent_s,
            input_share=self.input_share(),
            disturbed=tuple(self.disturbed),
        )

    def result(self, outcome: Outcome | None = None, reason: str | None = None) -> TrialResult:
        """Give what its turns have shown."""
        failed = self.failure
        return TrialResult(
            plan=self.plan,
            role=self.role,
            outcome=failed.outcome if failed else outcome or Outcome.OK,
            measurement=self.measurement(),
            peak_memory_bytes=self.peak_memory_bytes,
            peak_device_memory_bytes=self.peak_device_memory_bytes,
            compile_s=self.compile_s,
            reason=failed.reason if failed else reason,
            log_tail=failed.log_tail if failed else None,
            elapsed_s=self.elapsed_s,
            parameters={} if self.proposal is None else self.proposal.parameters,
        )

    @property
    def has_not_failed(self) -> bool:
        """Whether nothing speaks against another start: that it had no time does not."""
        return self.failure is None or self.failure.outcome is Outcome.NO_TIME

    def excuse(self) -> None:
        """Let it not have failed that its time was up: the budget ended, which shows nothing of it.

        What its turns have shown, if it had any, counts.
        """
        if self.failure is not None and self.failure.outcome is Outcome.TIME_LIMIT:
            never = TrialFailedError(Outcome.NO_TIME, NO_TURN)
            self.failure = None if self.turns_s else never

    @property
    def is_running(self) -> bool:
        """Whether it has turns to come."""
        return self.is_open or self.is_parked

    def park(self) -> None:
        """End its processes until its next turn."""
        if self.is_open:
            self.close()
            self.is_parked = True

    def close(self) -> None:
        """End its processes."""
        self.is_parked = False
        if self.is_open:
            self.is_open = False
            self.contender.close()


def warmup_steps(plan: Plan) -> int:
    """Give how many steps a warm-up has at least: those that loader processes read ahead too."""
    return _LEAST_WARMUP_STEPS + _PREFETCHED * plan.loader_workers


def steps_of_turn(step_s: float) -> int:
    """Give how many steps a turn has, by the time of one; 1 where that is not known."""
    return max(2, math.ceil(_LEAST_TURN_S / step_s)) if 0 < step_s < LONG_STEP_S else 1


def _sum_input(steps: Sequence[StepDone]) -> tuple[float, float]:
    return sum(step.input_s for step in steps), sum(step.time_s for step in steps)
