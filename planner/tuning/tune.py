"""Tuning within a budget: PyTorch's defaults, a race of challengers, and a final of the best."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from statistics import fmean

from threadpoolctl import threadpool_limits

from launch.case_facts import CaseFacts
from launch.plan import Plan, Setting
from launch.reports import Noted
from planner.errors import CancelledError
from planner.records.progress import ContenderStanding
from planner.search.plan_search import WORTHWHILE_GAIN, PlanSearch, Proposal, time_per_sample_s
from planner.trials.comparison import PairNoise, compare_results, fit_log_times
from planner.trials.contender import StartContender
from planner.trials.reports import Listener, RoundEnded, StudyOpened, TrialStarted
from planner.trials.result import Outcome, Role, TrialResult
from planner.tuning.choice import find_finalists
from planner.tuning.findings import Findings
from planner.tuning.race import Entrant, Race
from planner.tuning.trial_times import TrialTimes
from planner.tuning.tune_request import allows, limit_choices
from probes.timing import Interval

_CHALLENGERS = 3
"""Plans that race beside the incumbent at a time, where memory allows it."""

_MOST_ROUNDS = 4
"""Rounds after which a challenger that is neither known to be slower nor faster leaves."""

_LEAST_ROUNDS = 2
"""Turns that a plan must have had to be evidence."""

_LEAST_LIMIT_S = 10.0

_LEAST_TRIALS = 10
"""Trials of the study before a search may end because nothing promises to gain."""

_UNLIKELY, _UNLIKELY_AT_ONCE = 1.64, 2.6
"""Standard errors behind the incumbent from which on more turns are not worth their time, and after
a single one: the plan leaves without being called slower."""

_STARTS = 2
"""Times that each plan of the final is started afresh."""

_ROUNDS_TO_SETTLE, _SETTLED = 8, 0.015
"""Rounds after which a start of the final may end, and the half width of its ratios' intervals
from which on more rounds are not worth their time."""

_PUNCTUAL = 0.98
"""Part of the time left that the final plans with."""

_MARGIN, _RESERVE_MARGIN = 1.1, 1.2
"""How much longer a final may take than its steps until now would, and what is set aside for it."""

_MOST_FINAL_ROUNDS = 20
_LEAST_FINAL_SHARE, _FINAL_SHARE = 0.2, 0.4
"""Part of the budget for the final, at least and at most."""

_RARE_ROUNDS = 3
"""Turns of plans that are timed for comparison alone, at the first start."""

_LARGEST_RARE_SHARE, _LARGEST_SHARE_PART = 0.08, 0.4
"""Part of the budget that such a plan may take, and part of that for a smaller batch of the best
plan, which only a job with other nodes needs."""

_MEMORY_SHARE = 0.8
"""Part of the node's memory for all plans side by side."""


class Tuner:
    """Drives one search; each trial is kept as it ends.

    Args:
        findings: What the study knows, and takes note of each trial.
        start: Starts the processes of a plan.
        listener: Receives `TrialStarted`, `TrialProgress` and `TrialEnded`.
        checked_s: Time of the budget that checks before the search have taken.
        clock: Seconds that only go forward.
        only: What is drawn for the only plans that may be searched; ``None``: all.
    """

    def __init__(
        self,
        findings: Findings,
        start: StartContender,
        listener: Listener,
        *,
        checked_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
        only: Sequence[Mapping[str, Setting]] | None = None,
    ) -> None:
        self._only = only
        self._findings = findings
        self._request = findings.request
        self._listener = listener
        self._clock = clock
        self._race = Race(
            start,
            cores=findings.node.cpu.usable_cores,
            first_round=findings.first_round,
            on_step=listener,
            clock=clock,
        )
        self._noise = PairNoise()
        self._entrants: list[Entrant] = []
        self._proposals: dict[int, Proposal] = {}
        self._raced: list[Plan] = []
        self._drawn = 0
        self._leader: Plan | None = None
        self._deadline = clock() + self._request.budget_s - checked_s - findings.spent_s()
        self._times = TrialTimes(findings, self._entrants)

    def search(self) -> bool:
        """Search until the budget is used up; tell whether it was interrupted before.

        Raises:
            InfeasiblePlanError: None of the strategies can run here.
            KeyboardInterrupt: Ctrl-C came before any trial had succeeded.
            CancelledError: The search was cancelled before that.
        """
        self._listener(StudyOpened(study_id=self._findings.study_id))
        try:
            with self._closing():
                self._search()
                for entrant in list(self._entrants):
                    self._leave(entrant)
                self._run_final(self._finalists())
        except (KeyboardInterrupt, CancelledError):
            if not self._findings.candidates():
                raise
            return True
        return False

    def extend(self, waited_s: float) -> None:
        """Add time to the budget that was spent in waiting for others."""
        self._deadline += waited_s

    def measure_defaults(self) -> None:
        """Measure PyTorch's defaults, unless this search has."""
        with self._closing():
            if self._findings.defaults() is None:
                self._leave(self._enter_defaults())

    def confirm(self, plans: Sequence[Plan]) -> None:
        """Race the best plan of a node with equal hardware here; the next where it fails."""
        for plan in plans[:2]:
            with self._closing():
                self._run_final([plan], is_needed=True)
            if any(candidate.plan == plan for candidate in self._findings.current_candidates()):
                return

    @contextmanager
    def _closing(self) -> Iterator[None]:
        """Keep what is known of the plans that still run, and end them.

        The search computes with one thread: its matrices are small, and OpenBLAS's other threads
        would spin for a tenth of a second on cores where a turn has begun.
        """
        try:
            with threadpool_limits(limits=1, user_api="blas"):
                yield
        finally:
            for entrant in list(self._entrants):
                entrant.close()
                if len(entrant.turns_s) >= _LEAST_ROUNDS:
                    self._leave(entrant)
            self._entrants.clear()

    # The search.

    def _search(self) -> None:
        defaults = self._enter_defaults()
        self._store(defaults)
        # Plans that the user does not want must not drive out those that are wanted.
        is_wanted = allows(self._request, defaults.plan)
        incumbent = defaults if defaults.failure is None and is_wanted else None
        if incumbent is None:
            self._leave(defaults)
        search = PlanSearch(
            self._findings.subject.sources(self._request.strategies),
            self._with_choices(),
            self._findings.node,
            history=self._findings.history(),
            similar=self._findings.similar,
            only=self._only,
            worth=self._findings.worth,
            seed=self._request.workload.seed,
            training_samples=self._findings.training_samples,
            allows=lambda plan: allows(self._request, plan) and self._times.is_affordable(plan),
        )
        known = [c.plan for c in self._findings.best_candidates(2) if c.plan != defaults.plan]
        challengers: list[Entrant] = []
        while True:
            while len(challengers) < self._room(incumbent) and (
                challenger := self._enter_next(search, known)
            ):
                if challenger.failure is None:
                    challengers.append(challenger)
                else:
                    self._leave(challenger, search=search)
            if incumbent is None and challengers:
                incumbent = challengers.pop(0)
                continue
            self._leader = None if incumbent is None else incumbent.plan
            if not challengers or incumbent is None:
                return
            self._race.run_round([incumbent, *challengers], until=self._deadline)
            incumbent, challengers = self._judge(incumbent, challengers, search)
            self._report_standings(incumbent, challengers)

    def _judge(
        self, incumbent: Entrant, challengers: Sequence[Entrant], search: PlanSearch
    ) -> tuple[Entrant | None, list[Entrant]]:
        """Let those leave of which enough is known; give who is ahead, and who stays."""
        if incumbent.failure is not None:
            self._leave(incumbent, search=search)
            return None, list(challengers)
        staying = []
        for challenger in challengers:
            if challenger.failure is not None:
                self._leave(challenger, search=search)
                continue
            logs = self._pair_logs(incumbent, challenger)
            if not logs:
                if challenger.is_running and incumbent.is_running:
                    staying.append(challenger)
                else:
                    reason = "no turn until the budget ended: raise --budget"
                    self._leave(challenger, Outcome.TIME_LIMIT, reason, search=search)
                continue
            ahead, error = fmean(logs), self._noise.deviation / math.sqrt(len(logs))
            self._noise.learn(f"{incumbent.plan} {challenger.plan}", logs)
            sure = self._noise.half_width(len(logs))
            is_over = len(logs) >= _MOST_ROUNDS or not self._has_time_to_search()
            if ahead + sure < 0:
                slower = 100 * (math.exp(-ahead) - 1)
                reason = f"{slower:.0f} % more time per sample than the best plan beside it"
                self._leave(challenger, Outcome.SLOWER, reason, search=search)
            elif ahead - sure > 0 or (is_over and ahead > 0):
                self._leave(incumbent, search=search)
                incumbent = challenger
            elif is_over or ahead + _doubt(len(logs)) * error < 0:
                self._leave(challenger, search=search)
            else:
                staying.append(challenger)
        return incumbent, staying

    def _report_standings(self, first: Entrant | None, others: Sequence[Entrant]) -> None:
        """Report how the plans that take turns stand against the first one."""
        entrants = [entrant for entrant in (first, *others) if entrant and entrant.failure is None]
        standings = [self._standing(entrant, first) for entrant in entrants]
        self._listener(RoundEnded(left_s=max(0.0, self._remaining_s()), standings=tuple(standings)))

    def _standing(self, entrant: Entrant, first: Entrant | None) -> ContenderStanding:
        speedup, batch = None, entrant.plan.node_batch
        logs = [] if first is None or entrant is first else self._pair_logs(first, entrant)
        if logs and math.isfinite(sure := self._noise.half_width(len(logs))):
            ahead = fmean(logs)
            low, median, high = (math.exp(ahead + side) for side in (-sure, 0.0, sure))
            speedup = Interval(median=median, low=low, high=high, count=len(logs))
        return ContenderStanding(
            plan=entrant.plan,
            throughput_samples_per_s=batch / entrant.step_s if entrant.turns_s else None,
            speedup=speedup,
            is_leading=entrant is first,
        )

    def _pair_logs(self, slow: Entrant, fast: Entrant) -> list[float]:
        """Give the logarithm of the ratio of their times per sample, compiling charged to both."""
        samples = self._findings.training_samples

        def cost_s(entrant: Entrant, number: int) -> float:
            compiling_s = (entrant.compile_s or 0.0) / samples
            return entrant.turns_s[number] / entrant.plan.node_batch + compiling_s

        common = [number for number in fast.turns_s if number in slow.turns_s]
        return [math.log(cost_s(slow, n) / cost_s(fast, n)) for n in common]

    def _enter_next(self, search: PlanSearch, known: list[Plan]) -> Entrant | None:
        """Let the next plan enter: the best of earlier searches first."""
        if not self._has_time_to_search():
            return None
        self._take_later(search, known)
        if known:
            plan = known.pop(0)
            spare_s = self._remaining_s() - self._final_reserve_s()
            return self._enter(plan, Role.SEARCH, min(self._times.limit_s(plan), spare_s))
        limit = self._request.trials
        if limit is not None and self._drawn >= limit:
            return None
        self._note_turns(search)
        if self._knows_enough(search):
            return None
        spare_s = self._remaining_s() - self._final_reserve_s()
        proposal = search.propose(
            lambda plan: self._times.min_s(plan) <= min(self._times.limit_s(plan), spare_s)
        )
        if proposal is None:
            return None
        limit_s = min(self._times.limit_s(proposal.plan), spare_s)
        self._drawn += 1
        return self._enter(proposal.plan, Role.SEARCH, limit_s, proposal)

    def _take_later(self, search: PlanSearch, known: list[Plan]) -> None:
        """Learn from trials that others have stored; a plan that is faster is to be raced here."""
        later = self._findings.take_later()
        for stored in later.own:
            search.learn(stored.result)
            plan, best = stored.result.plan, self._findings.best_time_s()
            time_s = self._findings.time_per_sample_s(stored.result)
            is_faster = time_s is not None and (best is None or time_s < best.median)
            if is_faster and allows(self._request, plan) and plan not in self._raced:
                known[:] = [plan]  # the latest that is faster than what is known here
        if later.similar:
            search.learn_similar(later.similar)

    def _note_turns(self, search: PlanSearch) -> None:
        """Tell the search what plans that still race have shown: the best of all is one of them."""
        for entrant in self._entrants:
            proposal = self._proposals.get(id(entrant))
            if proposal is not None and entrant.turns_s and entrant.failure is None:
                search.note(proposal, self._without_drift(entrant.result()))

    def _knows_enough(self, search: PlanSearch) -> bool:
        """Tell whether no untried plan is expected to gain what trials can show."""
        timed = sum(1 for r in self._findings.results if r.outcome.has_times and r.measurement)
        is_racing = any(id(entrant) in self._proposals for entrant in self._entrants)
        if timed < _LEAST_TRIALS or is_racing or search.expected_gain() >= WORTHWHILE_GAIN:
            return False
        gain = f"{100 * WORTHWHILE_GAIN:.0f} %"
        self._listener(Noted(message=f"no untried plan is expected to gain more than {gain}"))
        return True

    def _room(self, incumbent: Entrant | None) -> int:
        """Give how many plans can race beside the incumbent."""
        if self._findings.node.gpus:
            return 1
        used = [entrant.peak_memory_bytes or 0 for entrant in self._entrants]
        largest = max(used, default=0)
        if not largest:
            return 1
        usable = _MEMORY_SHARE * self._findings.node.memory.usable_bytes
        return max(1, min(_CHALLENGERS, int(usable // largest) - (incumbent is not None)))

    # The final.

    def _finalists(self) -> list[Plan]:
        """Give the plans that may be the best, and the best in fp32 where rounding was allowed."""
        candidates = self._findings.candidates()
        if not candidates:
            return []
        plans = [candidate.plan for candidate in find_finalists(candidates)]
        if self._leader in [candidate.plan for candidate in candidates]:  # it won its races
            plans = [self._leader, *(plan for plan in plans if plan != self._leader)][: len(plans)]
        if self._request.precision == "auto" and plans[0].precision != "fp32":
            exact = replace(plans[0], precision="fp32")
            plans = [plans[0], exact, *(plan for plan in plans[1:] if plan != exact)]
        return plans

    def _run_final(self, plans: Sequence[Plan], *, is_needed: bool = False) -> None:
        """Start the finalists and what they are compared with afresh, and race them.

        Args:
            plans: The finalists, the best one first; none: no final.
            is_needed: Whether it is held however little time is left.
        """
        if all(plan == self._findings.defaults_plan for plan in plans):
            return
        defaults, rare = self._findings.defaults_plan, self._rare_plans(plans[0])
        least = 1 if plans[0].precision == "fp32" else min(2, len(plans))
        for starts, compared, count in _finals(range(len(plans), least - 1, -1), rare):
            raced = [plan for plan in plans[:count] if plan != defaults] + [defaults]
            needed_s = starts * self._final_time_s(raced)
            needed_s += self._final_time_s([plan for plan, _ in compared])
            if _MARGIN * needed_s < self._remaining_s():
                break
        else:
            if not is_needed:
                return
        roles = {repr(plan): role for plan, role in compared}
        roles |= {repr(plan): Role.FINAL for plan in plans} | {repr(defaults): Role.DEFAULTS}
        entrants: list[Entrant] = []
        for start in range(starts):
            end = self._clock() + _PUNCTUAL * self._remaining_s() / (starts - start)
            if start == 0:
                entrants = [
                    self._enter(plan, roles[repr(plan)], self._limit_s(plan, end))
                    for plan in [*raced, *(p for p, _ in compared)]
                ]
            else:
                for entrant in (e for e in entrants if e.failure is None and not e.role.is_rare):
                    entrant.is_parked = self._race.is_apart
                    if self._race.is_apart:
                        continue
                    self._race.restart(entrant, time_limit_s=self._limit_s(entrant.plan, end))
            self._race_final(entrants, end)
            for entrant in entrants:
                entrant.close()
        for entrant in entrants:
            self._leave(entrant)

    def _race_final(self, entrants: Sequence[Entrant], end: float) -> None:
        """Run rounds until the time is up; what is only compared with has a few turns."""
        for number in range(_MOST_FINAL_ROUNDS):
            running = [e for e in entrants if number < _RARE_ROUNDS or not e.role.is_rare]
            round_s = sum(entrant.turn_s for entrant in running if entrant.is_running)
            if number >= _LEAST_ROUNDS and self._clock() + round_s > end:
                return
            # One look a start: an interval that is looked at until it is narrow holds less often.
            if number == _ROUNDS_TO_SETTLE and _are_settled(running):
                return
            self._race.run_round(running, until=end)
            self._report_standings(entrants[0], entrants[1:])

    def _limit_s(self, plan: Plan, end: float) -> float:
        """Give the time in which a plan of the final must be warm."""
        return min(self._times.limit_s(plan), max(_LEAST_LIMIT_S, end - self._clock()))

    def _final_time_s(self, plans: Sequence[Plan]) -> float:
        """Estimate the least time of one start of some plans, and of the fewest rounds."""
        turns_s = sum(map(self._times.turn_s, plans))
        return sum(map(self._times.start_s, plans)) + _LEAST_ROUNDS * turns_s

    def _rare_plans(self, best: Plan) -> list[tuple[Plan, Role]]:
        """Give the plans that the best one is compared with by a few turns.

        One core, as the papers have it; the best plan with the use case's own batch, which shows
        what the settings gain apart from the batch; and with the batches that shares of a job with
        other nodes may have.
        """
        findings = self._findings
        own_batch = findings.subject.at_own_batch(best)
        compared = ((own_batch, Role.OWN_BATCH), (findings.baseline_plan, Role.BASELINE))
        wanted = [(plan, role) for plan, role in compared if plan is not None]
        shares = findings.subject.shares(best, findings.current_results())
        wanted += [(plan, Role.SHARE) for plan in shares]
        found: dict[str, tuple[Plan, Role]] = {}
        limit_s = _LARGEST_RARE_SHARE * self._request.budget_s
        for plan, role in wanted:
            is_new = plan not in (best, findings.defaults_plan) and repr(plan) not in found
            part = _LARGEST_SHARE_PART if role is Role.SHARE else 1.0
            if is_new and self._final_time_s([plan]) <= part * limit_s:
                found[repr(plan)] = (plan, role)
        return list(found.values())

    def _final_reserve_s(self) -> float:
        """Time to set aside for the final."""
        plans = (self._finalists() or [self._findings.defaults_plan])[:2]
        rare = [plan for plan, _ in self._rare_plans(plans[0])]
        raced_s = self._final_time_s([*plans, self._findings.defaults_plan])
        budget_s = self._request.budget_s
        needed_s = _RESERVE_MARGIN * (_STARTS * raced_s + self._final_time_s(rare))
        return min(max(needed_s, _LEAST_FINAL_SHARE * budget_s), _FINAL_SHARE * budget_s)

    # Entering and leaving.

    def _enter_defaults(self) -> Entrant:
        limit_s = max(self._times.usual_s(), self._remaining_s() / 2)
        entrant = self._enter(self._findings.defaults_plan, Role.DEFAULTS, limit_s)
        for _ in range(_LEAST_ROUNDS):
            self._race.run_round([entrant])
        return entrant

    def _enter(
        self, plan: Plan, role: Role, limit_s: float, proposal: Proposal | None = None
    ) -> Entrant:
        self._listener(TrialStarted(plan=plan, role=role, left_s=self._remaining_s()))
        parameters = {} if proposal is None else proposal.parameters
        entrant = self._race.enter(plan, role, time_limit_s=limit_s, parameters=parameters)
        others = [other for other in self._entrants if other.is_open]
        if others and entrant.failure and entrant.failure.outcome is Outcome.OUT_OF_MEMORY:
            # It may be the others that have its memory: then each has its turns alone.
            self._race.is_apart = True
            for other in others:
                other.park()
            entrant = self._race.enter(plan, role, time_limit_s=limit_s, parameters=parameters)
        if self._race.is_apart:
            entrant.park()
        self._entrants.append(entrant)
        self._raced.append(plan)
        if proposal is not None:
            self._proposals[id(entrant)] = proposal
        return entrant

    def _leave(
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
        self._entrants.remove(entrant)
        if not entrant.is_stored or len(entrant.turns_s) > entrant.stored_turns:
            result = self._store(entrant, result)
        proposal = self._proposals.pop(id(entrant), None)
        if search is not None and proposal is not None:
            search.tell(proposal, result)

    def _store(self, entrant: Entrant, result: TrialResult | None = None) -> TrialResult:
        """Keep what a plan has shown so far."""
        result = result or entrant.result()
        result = replace(result, elapsed_s=entrant.elapsed_s - entrant.stored_s)
        entrant.is_stored, entrant.stored_turns = True, len(entrant.turns_s)
        entrant.stored_s = entrant.elapsed_s
        ended = self._findings.add(self._without_drift(result))
        self._listener(ended)
        return ended.result

    def _without_drift(self, result: TrialResult) -> TrialResult:
        """Note in a result how slow the machine was meanwhile, by the plans beside it."""
        known = result.measurement
        if known is None or not known.rounds:
            return result
        racing = [one.result() for one in self._entrants]
        levels = fit_log_times([*self._findings.current_results(), *racing, result])
        raw = math.log(known.median_s / result.plan.node_batch)
        drift = math.exp(raw - levels[repr(result.plan)])
        return replace(result, measurement=replace(known, drift=drift))

    def _remaining_s(self) -> float:
        return self._deadline - self._clock()

    def _has_time_to_search(self) -> bool:
        return self._remaining_s() > self._final_reserve_s()

    def _with_choices(self) -> CaseFacts:
        """Put the user's limits into the search space, and leave out what takes too long."""
        defaults = self._findings.defaults()
        time_s = (time_per_sample_s(defaults) if defaults else None) or 0.0
        # What is too large as far as plans are known now, `TrialTimes.is_affordable` leaves out.
        cores = self._findings.node.cpu.usable_cores
        return limit_choices(
            self._findings.case,
            self._request,
            least_time_per_sample_s=_STEPS_OF_TRIAL * time_s / cores,
            cores=cores,
        )


_STEPS_OF_TRIAL = 5
"""Steps that a plan makes until it is judged: to get warm, and a few turns."""


def _doubt(rounds: int) -> float:
    return _UNLIKELY if rounds >= _LEAST_ROUNDS else _UNLIKELY_AT_ONCE


def _are_settled(entrants: Sequence[Entrant]) -> bool:
    """Tell whether the first plan's speed is known well enough next to each of the others."""
    first, *others = (entrant.result() for entrant in entrants)
    ratios = [compare_results(other, first) for other in others]
    return all(ratio and ratio.high - ratio.low <= 2 * _SETTLED * ratio.median for ratio in ratios)


def _finals(
    finalists: Sequence[int], rare: Sequence[tuple[Plan, Role]]
) -> Iterator[tuple[int, Sequence[tuple[Plan, Role]], int]]:
    """Give starts, plans to compare with and number of finalists, the most telling first."""
    for starts in range(_STARTS, 0, -1):
        for compared in range(len(rare), -1, -1):
            for count in finalists:
                yield starts, rare[:compared], count
