"""Race: plans that are kept warm side by side and take turns, so that drift slows all of them.

In a round each contender makes a few steps while the others stand still; every other round goes
backwards. What counts is the number of turns: neighbouring turns differ as much whether they last
half a second or seven. A round that others have disturbed is run again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

from launch.plan import Plan, Setting
from launch.reports import StepDone
from planner.trials.contender import Contender, StartContender, TrialFailedError
from planner.trials.reports import Listener, TrialProgress, ignore
from planner.trials.result import Outcome, Role, TrialResult
from probes.disturbance import Disturbance
from probes.timing import DisturbedTurn, Measurement

_LEAST_TURN_S = 0.25
"""Shorter turns would be spent in the switch from one plan to the next."""

_LONG_STEP_S = 1.5
"""A step that takes so long is a turn by itself."""

_LEAST_WARMUP_STEPS = 2
_MOST_WARMUP_STEPS = 8
_STILL_WARMING = 0.85
"""A step that takes less than this part of the one before shows that the plan is not warm yet."""

_PREFETCHED = 2
"""Batches that torch's DataLoader lets each of its processes read ahead."""

_MOST_REPEATS = 2
"""Times that a round is run again."""

_FREE_REPEATS, _REPEATED_SHARE = 2, 0.5
"""Rounds that are run again at most: so many, and such a part of all rounds."""

_STEADY = 6
"""Disturbed rounds in a row after which none is run again: what disturbs them does not pass."""

_INPUT_BOUND = 0.05
"""Part of the time in which a plan waits for its input, from which on it counts as bound by it."""


@dataclass(slots=True)
class Entrant:
    """A plan in a race: its processes, and the turns that it has had."""

    plan: Plan
    role: Role
    contender: Contender
    parameters: Mapping[str, Setting] = field(default_factory=dict)

    turns_s: dict[int, float] = field(default_factory=dict)
    """Mean step of each turn, by round."""

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

    is_stored: bool = False
    """Whether its result is kept, with the turns and the time that it had by then."""

    stored_turns: int = 0
    stored_s: float = 0.0

    failure: TrialFailedError | None = None
    _steps: int = 0
    _input_s: float = 0.0
    _timed_s: float = 0.0
    _read_ahead: list[int] = field(default_factory=list)
    _used_up: int = 0
    _peak_bytes: int | None = None
    _compile_s: float | None = None

    @property
    def step_s(self) -> float:
        """Time of a step, as far as it is known."""
        return fmean(list(self.turns_s.values())[-3:] or self.warmup_s[-1:] or [0.0])

    @property
    def turn_s(self) -> float:
        """Time of its next turn."""
        return self.step_s * self.steps_of_turn()

    def steps_of_turn(self) -> int:
        """Give how many steps its next turn has.

        A plan that waits for its loader processes has its batches in bursts, as many as there are
        processes: its turn is longer than what they can have read ahead.
        """
        step_s = self.step_s
        steps = steps_of_turn(step_s)
        if self.plan.loader_workers and self.input_share() > _INPUT_BOUND:
            steps = max(steps, _PREFETCHED * self.plan.loader_workers + 1)
        return steps

    def add_warmup(self, steps: Sequence[StepDone]) -> None:
        """Take note of steps before the first turn."""
        self.warmup_s += [step.time_s for step in steps]
        self.spent_s += sum(step.time_s for step in steps)
        self._input_s, self._timed_s = _sum_input(steps[-1:])
        self._read_ahead = [steps[-1].read_ahead]

    def add_turn(self, number: int, steps: Sequence[StepDone]) -> None:
        """Take note of a turn; of many steps the first, which finds cold caches, does not count."""
        counted = steps[1:] if len(steps) > 3 else steps
        self.turns_s[number] = fmean(step.time_s for step in counted)
        input_s, timed_s = _sum_input(steps)
        self._input_s, self._timed_s = self._input_s + input_s, self._timed_s + timed_s
        self._steps += len(steps)
        self.spent_s += timed_s
        self._read_ahead.append(steps[-1].read_ahead)

    def find_disturbance(self, number: int) -> Disturbance | None:
        """Give what disturbed its turn in a round, ``None`` where nothing has."""
        found = [turn.disturbance for turn in self.disturbed if turn.round == number]
        return found[-1] if found else None

    def discard_turn(self, number: int) -> None:
        """Let its turn in a round not count: the round is run again."""
        self.turns_s.pop(number, None)
        self.disturbed = [
            replace(turn, was_repeated=True) if turn.round == number else turn
            for turn in self.disturbed
        ]

    def begin_again(self, again: Entrant) -> None:
        """Go on with the processes of another start."""
        self._used_up += self._read_ahead_used()
        self._read_ahead = again._read_ahead
        self._peak_bytes, self._compile_s = self.peak_memory_bytes, self.compile_s
        self.contender = again.contender

    @property
    def peak_memory_bytes(self) -> int | None:
        """Highest memory over all starts."""
        return max(self._peak_bytes or 0, self.contender.peak_memory_bytes or 0) or None

    @property
    def compile_s(self) -> float | None:
        """Longest time to compile over all starts: later ones find the kernels in the cache."""
        known = [t for t in (self._compile_s, self.contender.compile_s) if t is not None]
        return max(known, default=None)

    def input_share(self) -> float:
        """Give the part of the time in which its steps waited for samples."""
        return self._input_s / self._timed_s if self._timed_s else 0.0

    def read_ahead_factor(self) -> float:
        """Give by how much steps would take longer without what was read before the first turn.

        Batches that lay ready then, and are used up now, were not loaded in the time of the turns.
        """
        used_up = self._used_up + self._read_ahead_used()
        return self._steps / max(1, self._steps - used_up) if self._steps else 1.0

    def _read_ahead_used(self) -> int:
        return max(0, self._read_ahead[0] - self._read_ahead[-1]) if self._read_ahead else 0

    def measurement(self, drift: float = 1.0) -> Measurement | None:
        """Give its times; those of the warm-up where it had no turn."""
        if not self.turns_s:
            if not self.warmup_s:
                return None
            *before, last = self.warmup_s
            return Measurement(warmup_s=tuple(before), samples_s=(last,), spent_s=self.spent_s)
        factor = self.read_ahead_factor()
        return Measurement(
            warmup_s=tuple(self.warmup_s),
            samples_s=tuple(time_s * factor for time_s in self.turns_s.values()),
            rounds=tuple(self.turns_s),
            drift=drift,
            starts=self.starts,
            spent_s=self.spent_s,
            input_share=self.input_share(),
            disturbed=tuple(self.disturbed),
        )

    def result(
        self, outcome: Outcome | None = None, reason: str | None = None, drift: float = 1.0
    ) -> TrialResult:
        """Give what its turns have shown."""
        failed = self.failure
        return TrialResult(
            plan=self.plan,
            role=self.role,
            outcome=failed.outcome if failed else outcome or Outcome.OK,
            measurement=self.measurement(drift),
            peak_memory_bytes=self.peak_memory_bytes,
            compile_s=self.compile_s,
            reason=failed.reason if failed else reason,
            log_tail=failed.log_tail if failed else None,
            elapsed_s=self.elapsed_s,
            parameters=self.parameters,
        )

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


def steps_of_turn(step_s: float) -> int:
    """Give how many steps a turn has, by the time of one."""
    return 1 if step_s >= _LONG_STEP_S else max(2, math.ceil(_LEAST_TURN_S / step_s))


class Race:
    """The rounds of one search.

    Args:
        start: Starts the processes of a plan.
        cores: Cores of the node.
        first_round: Number of the first round; later than those of earlier races of the study.
        on_step: Receives a `TrialProgress` after each turn.
        clock: Seconds that only go forward.
    """

    def __init__(
        self,
        start: StartContender,
        *,
        cores: int = 1,
        first_round: int = 0,
        on_step: Listener = ignore,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._start = start
        self._cores = cores
        self._round = first_round
        self._run_rounds = self._repeats = self._disturbed_in_a_row = 0
        self._on_step = on_step
        self._clock = clock
        self.is_apart = False
        """Whether two plans do not fit into memory at once: then each turn is a start."""

    def enter(
        self,
        plan: Plan,
        role: Role,
        *,
        time_limit_s: float,
        parameters: Mapping[str, Setting] | None = None,
    ) -> Entrant:
        """Start a plan and warm it up; whether that failed, its `Entrant.failure` tells.

        Warm-up lasts until a step is no longer clearly shorter than the one before, and until what
        loader processes read ahead during the first, slow steps is used up.
        """
        began = self._clock()
        try:
            contender = self._start(plan)
        except TrialFailedError as error:
            entrant = Entrant(plan, role, _NeverStarted(), parameters or {}, failure=error)
            entrant.is_open = False
            entrant.elapsed_s = self._clock() - began
            return entrant
        entrant = Entrant(plan, role, contender, parameters or {})
        try:
            self._warm_up(entrant, began + time_limit_s)
        except TrialFailedError as error:
            entrant.failure = error
            entrant.close()
        except BaseException:
            entrant.close()
            raise
        entrant.elapsed_s = self._clock() - began
        return entrant

    def restart(self, entrant: Entrant, *, time_limit_s: float) -> None:
        """Start a plan's processes afresh; its turns so far stay."""
        entrant.close()
        again = self.enter(entrant.plan, entrant.role, time_limit_s=time_limit_s)
        entrant.elapsed_s += again.elapsed_s
        entrant.spent_s += again.spent_s
        entrant.failure, entrant.is_open = again.failure, again.is_open
        entrant.starts += 1
        if again.failure is None:
            entrant.begin_again(again)

    def run_round(self, entrants: Sequence[Entrant], *, until: float = math.inf) -> None:
        """Give each of them a turn. One that fails is closed, and has its `Entrant.failure`.

        A round in which others disturbed a turn is run again, a few times and as far as there is
        time; then it counts as it is. All its turns are, for they are compared with each other.

        Args:
            entrants: Those that are closed have no turn.
            until: Time of the clock at which a turn is cut short, though not below some seconds.
        """
        self._take_turns(entrants, until)
        for _ in range(_MOST_REPEATS):
            round_s = sum(entrant.turn_s for entrant in entrants if entrant.is_open)
            if not self._shall_repeat(entrants) or self._clock() + round_s > until:
                return
            disturbed = self._round
            self._repeats += 1
            self._take_turns(entrants, until)
            for entrant in entrants:
                if self._round in entrant.turns_s:
                    entrant.discard_turn(disturbed)

    def _shall_repeat(self, entrants: Sequence[Entrant]) -> bool:
        if self.is_apart or not any(e.find_disturbance(self._round) for e in entrants):
            return False
        allowed = _FREE_REPEATS + _REPEATED_SHARE * (self._run_rounds - self._repeats)
        return self._disturbed_in_a_row < _STEADY and self._repeats < allowed

    def _take_turns(self, entrants: Sequence[Entrant], until: float) -> None:
        self._round += 1
        order = entrants if self._round % 2 else entrants[::-1]
        for entrant in order:
            if entrant.is_parked:
                self.restart(entrant, time_limit_s=max(_LEAST_LIMIT_S, until - self._clock()))
            if entrant.is_open:
                self._take_turn(entrant, max(_LEAST_LIMIT_S, until - self._clock()))
            if self.is_apart:
                entrant.park()
        self._run_rounds += 1
        is_disturbed = any(entrant.find_disturbance(self._round) for entrant in entrants)
        self._disturbed_in_a_row = self._disturbed_in_a_row + 1 if is_disturbed else 0

    def _warm_up(self, entrant: Entrant, deadline: float) -> None:
        least = _LEAST_WARMUP_STEPS + _PREFETCHED * entrant.plan.loader_workers
        most = least + _MOST_WARMUP_STEPS
        while len(known := entrant.warmup_s) < least or (
            len(known) < most and known[-1] < _STILL_WARMING * known[-2]
        ):
            left = self._clock()
            count = max(1, min(least - len(known), 1 if not known else least))
            entrant.add_warmup(
                entrant.contender.make_steps(count, time_limit_s=max(0.0, deadline - left))
            )
            self._report(entrant)

    def _take_turn(self, entrant: Entrant, time_limit_s: float) -> None:
        began = self._clock()
        count = entrant.steps_of_turn()
        limit_s = min(time_limit_s, max(_LEAST_LIMIT_S, _SLOWDOWN * entrant.turn_s))
        try:
            steps = entrant.contender.make_steps(count, time_limit_s=limit_s)
        except TrialFailedError as error:
            if error.outcome is not Outcome.TIME_LIMIT or limit_s < time_limit_s:
                entrant.failure = error
            entrant.close()
        else:
            entrant.add_turn(self._round, steps)
            self._note_disturbance(entrant)
            self._report(entrant)
        entrant.elapsed_s += self._clock() - began

    def _note_disturbance(self, entrant: Entrant) -> None:
        found = entrant.contender.disturbance
        if found is not None and found.is_disturbed(entrant.plan.threads, self._cores):
            turn = DisturbedTurn(round=self._round, disturbance=found, was_repeated=False)
            entrant.disturbed.append(turn)

    def _report(self, entrant: Entrant) -> None:
        rate = entrant.plan.node_batch / entrant.step_s
        self._on_step(
            TrialProgress(
                steps=len(entrant.warmup_s) + entrant._steps,
                elapsed_s=entrant.spent_s,
                throughput_samples_per_s=rate,
            )
        )


_LEAST_LIMIT_S, _SLOWDOWN = 10.0, 20.0
"""A turn that takes so much longer than the ones before has got stuck."""


class _NeverStarted:
    """Stands for the processes of a plan that could not be started."""

    peak_memory_bytes: int | None = None
    compile_s: float | None = None
    disturbance: Disturbance | None = None

    def make_steps(self, count: int, *, time_limit_s: float) -> Sequence[StepDone]:
        """Make none."""
        return ()

    def close(self) -> None:
        """Do nothing."""


def _sum_input(steps: Sequence[StepDone]) -> tuple[float, float]:
    return sum(step.input_s for step in steps), sum(step.time_s for step in steps)
