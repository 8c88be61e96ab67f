"""Race: plans that are kept warm side by side and take turns, so that drift slows all of them.

In a round each contender makes a few steps while the others stand still; every other round goes
backwards. What counts is the number of turns: neighbouring turns differ as much whether they last
half a second or seven. A plan whose turn others have disturbed has another one at once.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from functools import partial

from launch.plan import Plan
from launch.reports import Noted, StepDone
from planner.trials.contender import StartContender, TrialFailedError
from planner.trials.reports import Listener, TrialProgress, ignore
from planner.trials.result import Outcome, Role
from planner.tuning.entrant import Entrant, LastBatches, warmup_steps
from probes.disturbance import Disturbance
from probes.timing import DisturbedTurn

_MOST_WARMUP_STEPS = 8
_STILL_WARMING = 0.85
"""A step that takes less than this part of the one before shows that the plan is not warm yet; of a
turn, so does a step before it."""

_MOST_SETTLING = 4
"""First rounds of a start that do not count, at most."""

_LEAST_LIMIT_S, _SLOWDOWN = 10.0, 20.0
"""A turn that takes so much longer than the ones before has got stuck."""

_MOST_REPEATS = 2
"""Times that a turn is taken again."""

_FREE_REPEATS, _REPEATED_SHARE = 6, 1.0
"""Turns that are taken again at most: so many, and such a part of those that count."""

_STEADY = 12
"""Disturbed turns in a row after which none is taken again: what disturbs them does not pass."""

_ONE_PORT = (
    "plans need the same port, so that each turn is a start of its own, which takes time: let each "
    "start take a free one, as torchrun --standalone does"
)


class Race:
    """The rounds of one search.

    Args:
        start: Starts the processes of a plan.
        cores: Cores of the node.
        first_round: Number of the first round; later than those of earlier races of the study.
        on_step: Receives a `TrialProgress` after each turn, and what slows all of them.
        clock: Seconds that only go forward.
        fits: Tells whether plans are expected to fit into memory at once.
        gpu_bytes: Gives what plans have held of a GPU's memory, all together, as far as is known.
        worth: Gives by what the times of steps with a batch of so many are divided.
    """

    def __init__(
        self,
        start: StartContender,
        *,
        cores: int = 1,
        first_round: int = 0,
        on_step: Listener = ignore,
        clock: Callable[[], float] = time.monotonic,
        fits: Callable[[Sequence[Plan]], bool] = lambda _: True,
        gpu_bytes: Callable[[Sequence[Plan]], int] = lambda _: 0,
        worth: Callable[[int], float] = lambda _: 1.0,
    ) -> None:
        self._start = start
        self._cores = cores
        self._round = first_round
        self._counted = self._repeats = self._disturbed_in_a_row = 0
        self._entered: list[Entrant] = []
        self._on_step = on_step
        self._clock = clock
        self._fits = fits
        self._gpu_bytes = gpu_bytes
        self._worth = worth
        self._lacked_memory: list[list[Plan]] = []
        self._need_one_port = False
        self._last_batches = LastBatches()

    @property
    def is_apart(self) -> bool:
        """Whether its plans cannot run at once: then each turn is a start."""
        return self.would_be_apart([one.plan for one in self._entered if one.is_running])

    def would_be_apart(self, plans: Sequence[Plan]) -> bool:
        """Tell whether plans would not fit at once, as is expected, or as others have not fitted.

        What needs a port that another one had has a fixed one in its code: so has every plan of it.
        Plans that held less of a GPU than those that lacked memory may fit. Of a host's memory that
        is not known: after one lack there, none run side by side.
        """
        if self._need_one_port or not self._fits(plans):
            return True
        held_bytes = self._gpu_bytes(plans)
        return any(held_bytes >= self._gpu_bytes(others) for others in self._lacked_memory)

    def enter(self, plan: Plan, role: Role, *, time_limit_s: float) -> Entrant:
        """Start a plan and warm it up; whether that failed, its `Entrant.failure` tells.

        Warm-up lasts until a step is no longer clearly shorter than the one before, and until what
        loader processes read ahead during the first, slow steps is used up.
        """
        self._entered = [other for other in self._entered if other.is_running]
        if self.would_be_apart([plan, *(other.plan for other in self._entered)]):
            for other in self._entered:
                other.park()
        start = partial(self._start_plan, plan, role, time_limit_s)
        entrant = self._run_beside(start, self._open_beside())
        self._entered.append(entrant)
        return entrant

    def restart(self, entrant: Entrant, *, time_limit_s: float, until: float = math.inf) -> None:
        """Start a plan's processes afresh; its turns so far stay.

        Args:
            entrant: The plan.
            time_limit_s: In which it must be warm, or else it fails.
            until: Time of the clock at which its start is cut short, though not below some seconds.
        """

        def start() -> Entrant:
            left_s = self._left_s(until)
            self._restart(entrant, min(time_limit_s, left_s), is_cut=left_s < time_limit_s)
            return entrant

        self._run_beside(start, self._open_beside(entrant))

    def go_forwards(self) -> None:
        """Let the next round go forwards: the first plan has its turn, whatever time is left."""
        self._round += self._round % 2

    def run_round(self, entrants: Sequence[Entrant], *, until: float = math.inf) -> None:
        """Give each of them a turn. One that fails is closed, and has its `Entrant.failure`.

        A turn that others disturbed is taken again, a few times and as far as there is time for all
        turns of the round; then it counts as it is.

        Args:
            entrants: Those that are closed have no turn.
            until: Time of the clock at which a turn is cut short, though not below some seconds.
        """
        self._round += 1
        self._take_turns(entrants if self._round % 2 else entrants[::-1], until)

    def run_first_round(
        self, entrants: Sequence[Entrant], *, until: float = math.inf, least: int = 1
    ) -> None:
        """Run the first round after starts, again while a plan is slower than when it got warm.

        A plan that gives its memory back in every step was up to twice as slow for some turns after
        others were started. What slows all plans alike does not show in their ratios. A plan that
        waits for its input says nothing here; one that is only compared with has its turn at last.

        Args:
            entrants: Those that are closed have no turn.
            until: As of `run_round`.
            least: Rounds for which there must be time yet, or else the round counts as it is.
        """
        often = [entrant for entrant in entrants if not entrant.role.is_rare]
        raced = [entrant for entrant in often if not entrant.is_input_bound()]
        warm_s = [entrant.step_s for entrant in raced]
        for _ in range(_MOST_SETTLING):
            self.go_forwards()
            self.run_round(often, until=until)
            turns_s = [entrant.turns_s.get(self._round) for entrant in raced]
            slower = [
                turn / warm for turn, warm in zip(turns_s, warm_s, strict=True) if turn and warm
            ]
            common = max(1.0, min(slower, default=1.0))
            left_s = until - self._clock() - least * sum(e.turn_s for e in entrants if e.is_open)
            is_warm = max(slower, default=1.0) * _STILL_WARMING <= common
            if is_warm or left_s < 0 or self.is_apart:
                break
            for entrant in often:
                entrant.count_as_warmup(self._round)
        else:
            self.go_forwards()
            self.run_round(often, until=until)
        self._take_turns([entrant for entrant in entrants if entrant.role.is_rare], until)

    def _take_turns(self, entrants: Sequence[Entrant], until: float) -> None:
        for number, entrant in enumerate(entrants):
            if entrant.is_running:
                self._have_turn(entrant, until)
                self._counted += 1
                for _ in range(_MOST_REPEATS):
                    if self._shall_repeat(entrants[number:], until):
                        self._have_turn(entrant, until)
                        self._repeats += 1

    def _shall_repeat(self, entrants: Sequence[Entrant], until: float) -> bool:
        """Tell whether the first of those that are left in the round shall have its turn again."""
        if not (entrants[0].is_open and entrants[0].was_disturbed(self._round)) or self.is_apart:
            return False
        allowed = _FREE_REPEATS + _REPEATED_SHARE * self._counted
        passes = self._disturbed_in_a_row < _STEADY
        round_s = sum(entrant.turn_s for entrant in entrants if entrant.is_open)
        return passes and self._repeats < allowed and self._clock() + round_s <= until

    def _have_turn(self, entrant: Entrant, until: float) -> None:
        def take() -> Entrant:
            if not entrant.is_open:
                self._restart(entrant, self._left_s(until), is_cut=True)
            if entrant.is_open:
                self._take_turn(entrant, self._left_s(until))
            return entrant

        beside = self._open_beside(entrant)
        if self.is_apart:
            # Only now: rounds take turns forwards and backwards, and who was last is first.
            for other in beside:
                other.park()
            if not entrant.is_open:  # then it starts without them
                beside = []
        self._run_beside(take, beside)

    def _left_s(self, until: float) -> float:
        """Give the time that is left until a time of the clock; some seconds at least."""
        return max(_LEAST_LIMIT_S, until - self._clock())

    def _open_beside(self, entrant: Entrant | None = None) -> list[Entrant]:
        return [other for other in self._entered if other.is_open and other is not entrant]

    def _run_beside(self, run: Callable[[], Entrant], beside: Sequence[Entrant]) -> Entrant:
        """Run a plan; again, alone, where others may have had the memory or the port it lacked.

        The kernel may end another process than the one that asked for too much, and one that
        stands still. If the plan runs alone, it and the others do not fit at once; if not, it is
        too large by itself, or a stranger has its port, and the others go on as before.
        """
        entrant = run()
        lacked_port = entrant.failure is not None and entrant.failure.lacks_port
        if not beside or not (lacked_port or _lacked_memory(entrant)):
            return entrant
        for other in beside:
            other.park()
        again = run()
        if again.is_open and lacked_port:
            self._need_one_port = True
            self._on_step(Noted(message=_ONE_PORT))
        elif again.is_open:
            self._lacked_memory.append([again.plan, *(other.plan for other in beside)])
        return again

    def _start_plan(self, plan: Plan, role: Role, time_limit_s: float) -> Entrant:
        began, worth = self._clock(), self._worth(plan.node_batch)
        entrant = Entrant(plan, role, _NeverStarted(), self._last_batches, worth)
        try:
            entrant.contender = self._start(plan)
            self._warm_up(entrant, began + time_limit_s)
        except TrialFailedError as error:
            entrant.failure = error
            entrant.close()
        except BaseException:
            entrant.close()
            raise
        entrant.elapsed_s = self._clock() - began
        return entrant

    def _restart(self, entrant: Entrant, time_limit_s: float, *, is_cut: bool) -> None:
        entrant.close()
        again = self._start_plan(entrant.plan, entrant.role, time_limit_s)
        entrant.elapsed_s += again.elapsed_s
        entrant.spent_s += again.spent_s
        entrant.failure, entrant.is_open = again.failure, again.is_open
        if again.failure is None:
            entrant.starts += 1
            entrant.begin_again(again)
        elif is_cut:
            entrant.excuse()

    def _warm_up(self, entrant: Entrant, deadline: float) -> None:
        least = warmup_steps(entrant.plan)
        most = least + _MOST_WARMUP_STEPS
        while len(known := entrant.warmup_s) < least or (
            len(known) < most and known[-1] < _STILL_WARMING * known[-2]
        ):
            count = max(1, least - len(known)) if known else 1
            left_s = max(0.0, deadline - self._clock())
            entrant.add_warmup(entrant.contender.make_steps(count, time_limit_s=left_s))
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
        is_disturbed = found is not None and found.is_disturbed(entrant.plan.threads, self._cores)
        self._disturbed_in_a_row = self._disturbed_in_a_row + 1 if is_disturbed else 0
        if found is not None and is_disturbed:
            turn = DisturbedTurn(round=self._round, disturbance=found, was_repeated=False)
            entrant.disturbed.append(turn)

    def _report(self, entrant: Entrant) -> None:
        rate = entrant.plan.node_batch / entrant.step_s
        self._on_step(
            TrialProgress(
                steps=len(entrant.warmup_s) + entrant.steps,
                elapsed_s=entrant.spent_s,
                throughput_samples_per_s=rate,
            )
        )


def _lacked_memory(entrant: Entrant) -> bool:
    failure = entrant.failure
    return failure is not None and failure.outcome is Outcome.OUT_OF_MEMORY


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
