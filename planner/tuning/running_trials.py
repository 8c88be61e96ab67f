"""Running trials of a search: plans enter its race, leave it, and their results are stored."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from statistics import median

from threadpoolctl import threadpool_limits

from launch.plan import Plan
from launch.system.session import defer_signals
from planner.records.progress import ContenderStanding
from planner.search.memory import MemoryModel
from planner.search.plan_search import PlanSearch, Proposal
from planner.trials.comparison import PairNoise, telling_rounds
from planner.trials.contender import StartContender
from planner.trials.drift import remove_drift
from planner.trials.reports import Listener, RoundEnded, TrialStarted
from planner.trials.result import Outcome, Role, TrialResult
from planner.tuning.entrant import Entrant
from planner.tuning.findings import Findings
from planner.tuning.race import Race
from planner.tuning.trial_times import TrialTimes
from probes.timing import Interval

LEAST_ROUNDS = 2
"""Turns that a plan must have had to be evidence."""

_UNLIKELY, _UNLIKELY_AT_ONCE = 1.64, 2.6
"""Standard errors behind the best plan from which on more turns are not worth their time, and after
a single one: the plan leaves without being called slower."""


class RunningTrials:
    """The plans of one search that run now.

    Args:
        findings: What the study knows, and takes note of each trial.
        start: Starts the processes of a plan.
        listener: Receives the reports of `planner.trials.reports`.
        checked_s: Time of the budget that is used up.
        clock: Seconds that only go forward.

    Attributes:
        race: In which they take turns.
        noise: Of the pairs that were compared so far.
        times: What plans need.
        raced: All plans that have entered.
        deadline: Time of the clock at which the budget ends.
    """

    def __init__(
        self,
        findings: Findings,
        start: StartContender,
        listener: Listener,
        *,
        checked_s: float,
        clock: Callable[[], float],
    ) -> None:
        self._findings = findings
        self._listener = listener
        self._clock = clock
        self._entrants: list[Entrant] = []
        self._memory, self._learned = MemoryModel(findings.case, findings.node), 0
        self.race = Race(
            start,
            cores=findings.node.cpu.usable_cores,
            first_round=findings.first_round,
            on_step=listener,
            clock=clock,
            fits=self.fit_side_by_side,
            gpu_bytes=self.held_gpu_bytes,
            worth=findings.worth,
        )
        self.noise = PairNoise()
        self.raced: list[Plan] = []
        self.deadline = clock() + findings.request.budget_s - checked_s - findings.spent_s()
        self.times = TrialTimes(findings, self._entrants)

    def __iter__(self) -> Iterator[Entrant]:
        return iter(list(self._entrants))

    def remaining_s(self) -> float:
        """Give the time that is left of the budget."""
        return self.deadline - self._clock()

    def fit_side_by_side(self, plans: Sequence[Plan]) -> bool:
        """Tell whether plans are expected to fit into memory at once."""
        running = {e.plan: e.peak_memory_bytes or 0 for e in self._entrants}
        return self._learned_memory().fit_side_by_side(plans, running)

    def held_gpu_bytes(self, plans: Sequence[Plan]) -> int:
        """Give what plans have held of a GPU's memory, all together, as far as is known."""
        running = {e.plan: e.peak_device_memory_bytes or 0 for e in self._entrants}
        return self._learned_memory().held_gpu_bytes(plans, running)

    def _learned_memory(self) -> MemoryModel:
        """Give what all trials so far tell of the memory of plans."""
        results = self._findings.results
        self._memory.learn(results[self._learned :])
        self._learned = len(results)
        return self._memory

    def has_room_for(self, plan: Plan) -> bool:
        """Tell whether a plan is expected to fit into memory beside those that run."""
        running = [entrant.plan for entrant in self._entrants if entrant.is_running]
        return not self.race.would_be_apart([*running, plan])

    def round_s(self, entrants: Sequence[Entrant]) -> float:
        """Estimate the time of a round, with a start in each turn where plans are apart."""
        running = [entrant for entrant in entrants if entrant.is_running]
        starts_s = sum(self.times.start_s(e.plan) for e in running) if self.race.is_apart else 0.0
        return starts_s + sum(entrant.turn_s for entrant in running)

    @contextmanager
    def closing(self) -> Iterator[None]:
        """Keep what is known of the plans that still run, and end them.

        Where the search knows plans, nothing is kept of a final that has hardly begun: the plans
        that happened to have had their turns would seem to have won it.

        The search computes with one thread: its matrices are small, and OpenBLAS's other threads
        would spin for a tenth of a second on cores where a turn has begun.
        """
        try:
            with threadpool_limits(limits=1, user_api="blas"):
                yield
        finally:
            is_unfair = self._has_final_just_begun() and self._findings.candidates()
            for entrant in list(self._entrants):
                entrant.close()
                if len(entrant.turns_s) >= LEAST_ROUNDS and not is_unfair:
                    self.leave(entrant)
            self._entrants.clear()

    def _has_final_just_begun(self) -> bool:
        """Tell whether a final runs in which not all have had the fewest turns, and none more."""
        raced = [entrant for entrant in self._entrants if not entrant.role.is_rare]
        turns = [len(entrant.turns_s) for entrant in raced if entrant.is_running]
        is_final = any(entrant.role is Role.FINAL for entrant in raced)
        return is_final and bool(turns) and min(turns) < LEAST_ROUNDS >= max(turns)

    def enter(
        self, plan: Plan, role: Role, limit_s: float, proposal: Proposal | None = None
    ) -> Entrant:
        """Start a plan and let it enter; whether that failed, its `Entrant.failure` tells.

        Args:
            plan: The plan.
            role: Why it runs.
            limit_s: In which it must be warm; less than what such a plan needs where the budget
                ends then.
            proposal: By which the search proposed it.
        """
        is_cut = limit_s < self.times.limit_s(plan)
        self._listener(TrialStarted(plan=plan, role=role, left_s=self.remaining_s()))
        entrant = self.race.enter(plan, role, time_limit_s=limit_s)
        entrant.proposal = proposal
        if is_cut:
            entrant.excuse()
        self._entrants.append(entrant)
        self.raced.append(plan)
        return entrant

    def leave(
        self,
        entrant: Entrant,
        outcome: Outcome | None = None,
        reason: str | None = None,
        *,
        search: PlanSearch | None = None,
    ) -> None:
        """End a plan's processes and keep what it showed, unless that is kept already."""
        entrant.close()
        result = entrant.result(outcome, reason)
        has_news = entrant.failure is not entrant.stored_failure
        has_news |= entrant.stored_turns is None or len(entrant.turns_s) > entrant.stored_turns
        with defer_signals():  # else Ctrl-C could lose what is neither racing any more nor stored
            self._entrants.remove(entrant)
            if has_news:
                result = self.store(entrant, result)
        if search is not None and entrant.proposal is not None:
            search.tell(entrant.proposal, result)

    def store(self, entrant: Entrant, result: TrialResult | None = None) -> TrialResult:
        """Keep what a plan has shown so far."""
        result = result or entrant.result()
        result = replace(result, elapsed_s=entrant.elapsed_s - entrant.stored_s)
        if (measured := result.measurement) is not None:
            since_s = entrant.spent_s - entrant.stored_spent_s
            result = replace(result, measurement=replace(measured, spent_s=since_s))
        with defer_signals():  # else Ctrl-C could leave unstored what counts as stored
            entrant.stored_turns, entrant.stored_failure = len(entrant.turns_s), entrant.failure
            entrant.stored_s, entrant.stored_spent_s = entrant.elapsed_s, entrant.spent_s
            ended = self._findings.add(self.without_drift(result))
        self._listener(ended)
        return self._findings.results[-1]

    def without_drift(self, result: TrialResult) -> TrialResult:
        """Note in a result how slow the machine was meanwhile, by the plans beside it."""
        racing = [one.result() for one in self._entrants]
        return remove_drift([*self._findings.current_results(), *racing, result])[-1]

    def report_standings(self, first: Entrant | None, others: Sequence[Entrant]) -> None:
        """Report how the plans that take turns stand against the first that has not failed."""
        entrants = [entrant for entrant in (first, *others) if entrant and entrant.failure is None]
        standings = [self._standing(entrant, entrants[0]) for entrant in entrants]
        self._listener(RoundEnded(left_s=max(0.0, self.remaining_s()), standings=tuple(standings)))

    def _standing(self, entrant: Entrant, first: Entrant) -> ContenderStanding:
        speedup, batch = None, entrant.plan.node_batch
        logs = [] if entrant is first else self.pair_logs(first, entrant)
        if logs and math.isfinite(sure := self.noise.half_width(len(logs))):
            low, middle, high = (math.exp(median(logs) + side) for side in (-sure, 0.0, sure))
            speedup = Interval(median=middle, low=low, high=high, count=len(logs))
        return ContenderStanding(
            plan=entrant.plan,
            throughput_samples_per_s=batch / entrant.step_s if entrant.turns_s else None,
            speedup=speedup,
            is_leading=entrant is first,
        )

    def pair_logs(self, slow: Entrant, fast: Entrant) -> list[float]:
        """Give the logarithm of the ratio of their times per sample, compiling charged to both."""
        samples = self._findings.training_samples

        def cost_s(entrant: Entrant, number: int) -> float:
            compiling_s = (entrant.compile_s or 0.0) / samples
            step_s = entrant.turns_s[number] * entrant.small_batch_factor()
            return step_s / entrant.plan.node_batch + compiling_s

        clean = [{n for n in one.turns_s if not one.was_disturbed(n)} for one in (slow, fast)]
        pairs = telling_rounds(slow.turns_s.keys() & fast.turns_s.keys(), *clean)
        return [math.log(cost_s(slow, one) / cost_s(fast, other)) for one, other in pairs]

    def is_behind(self, one: Entrant, other: Entrant) -> bool:
        """Tell whether a plan is so far behind another one that more turns are not worth them."""
        logs = self.pair_logs(other, one)
        if not logs:
            return False
        doubt = _UNLIKELY if len(logs) >= LEAST_ROUNDS else _UNLIKELY_AT_ONCE
        return median(logs) < -doubt * self.noise.deviation / math.sqrt(len(logs))

    def proposed(self) -> Iterator[tuple[Entrant, Proposal]]:
        """Give those that the search has proposed, with its proposals."""
        for entrant in self:
            if entrant.proposal is not None:
                yield entrant, entrant.proposal
