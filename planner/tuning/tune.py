"""Tuning within a budget: PyTorch's defaults, a race of challengers, and a final of the best."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import median

from launch.case_facts import CaseFacts
from launch.plan import Plan, Setting
from launch.reports import Noted
from planner.errors import CancelledError
from planner.quantities import format_count
from planner.search.plan_search import WORTHWHILE_GAIN, PlanSearch, Proposal, time_per_sample_s
from planner.trials.contender import StartContender
from planner.trials.reports import Listener, StudyOpened
from planner.trials.result import Outcome, Role, TrialResult
from planner.tuning.choice import rank_by_rate
from planner.tuning.entrant import NO_TURN, Entrant
from planner.tuning.final import Final
from planner.tuning.findings import Findings
from planner.tuning.looks import choose_whole_plans, explain_looks
from planner.tuning.running_trials import LEAST_ROUNDS, RunningTrials
from planner.tuning.tune_request import allows, limit_choices

_CHALLENGERS = 3
"""Plans that race beside the incumbent at a time, where memory allows it."""

_MOST_ROUNDS = 4
"""Rounds after which a challenger that is neither known to be slower nor faster leaves."""

_LEAST_TRIALS = 10
"""Trials of the study before a search may end because nothing promises to gain."""

_ENOUGH = f"no untried plan is expected to gain more than {100 * WORTHWHILE_GAIN:.0f} %"

_STEPS_OF_TRIAL = 5
"""Steps that a plan makes until it is judged: to get warm, and a few turns."""

NOTHING_MEASURED = "nothing was measured yet: the same command starts again"


class Tuner:
    """Drives one search; each trial is kept as it ends.

    Args:
        findings: What the study knows, and takes note of each trial.
        start: Starts the processes of a plan.
        listener: Receives the reports of `planner.trials.reports`, and lines.
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
        self._trials = RunningTrials(findings, start, listener, checked_s=checked_s, clock=clock)
        self._times = self._trials.times
        self._final = Final(findings, self._trials, clock)
        self._drawn = 0
        self._waiting: Proposal | None = None
        self._leader: Plan | None = None
        self._look_batch: int | None = None
        self._confirms = self._has_said_enough = self._has_raced = False

    def search(self) -> bool:
        """Search until the budget is used up; tell whether it was interrupted before.

        Raises:
            InfeasiblePlanError: None of the strategies can run here.
            KeyboardInterrupt: Ctrl-C came before any trial had succeeded.
            CancelledError: The search was cancelled before that.
        """
        case, study_id = self._findings.case, self._findings.study_id
        self._listener(StudyOpened(study_id=study_id, is_generated=case.is_generated))
        try:
            with self._trials.closing():
                search = self._search()
                for entrant in self._trials:
                    self._trials.leave(entrant, search=search)
                self._final.run(self._finalists(search))
        except (KeyboardInterrupt, CancelledError):
            if not self._findings.candidates():
                seen = [r for r in self._findings.new_results() if r.outcome.has_times]
                known = NOTHING_MEASURED
                if looks := sum(result.role is Role.LOOK for result in seen):
                    how = f"the same command goes on from {format_count(looks, 'look')}"
                    known = f"no plan was tried with a whole batch yet: {how}"
                self._listener(Noted(message=known))
                raise
            return True
        return False

    def extend(self, waited_s: float) -> None:
        """Add to the budget the time that was spent in waiting for others."""
        self._trials.deadline += waited_s

    def measure_defaults(self) -> None:
        """Measure PyTorch's defaults, unless this search has."""
        with self._trials.closing():
            if self._findings.defaults() is None:
                self._trials.leave(self._enter_defaults())

    def confirm(self, plans: Sequence[Plan]) -> None:
        """Race the best plan of a node with equal hardware here; the next where it fails."""
        for plan in plans[:2]:
            with self._trials.closing():
                self._final.run([plan], is_needed=True)
            if any(candidate.plan == plan for candidate in self._findings.current_candidates()):
                return

    def _search(self) -> PlanSearch:
        best = rank_by_rate(self._findings.candidates())[:2]
        known = [one.plan for one in best if one.plan != self._findings.defaults_plan]
        is_known = self._findings.has_finished_with_a_plan()
        if is_known and self._has_searched_enough():
            self._confirms, known = True, self._findings.plans_to_confirm()
        elif not is_known and self._only is None and self._request.trials != 0:
            self._begin_with_looks()
        if self._look_batch is not None:  # what was tried whole waits for the final
            known = []
        defaults = self._enter_defaults()
        first = self._trials.store(defaults)
        # Plans that the user does not want must not drive out those that are wanted.
        incumbent = defaults if defaults.failure is None and self._allows(defaults.plan) else None
        if incumbent is None:
            self._trials.leave(defaults)
        search = self._make_search(first, self._look_batch)
        challengers: list[Entrant] = []
        while True:
            while len(challengers) < self._most_challengers() and (
                challenger := self._enter_next(search, known, may_wait=bool(challengers))
            ):
                if challenger.failure is None:
                    challengers.append(challenger)
                else:
                    self._trials.leave(challenger, search=search)
            if incumbent is None and challengers:
                incumbent = challengers.pop(0)
                continue
            self._leader = None if incumbent is None else incumbent.plan
            if not challengers or incumbent is None:
                return search
            self._trials.race.run_round([incumbent, *challengers], until=self._trials.deadline)
            incumbent, challengers = self._judge(incumbent, challengers, search)
            self._trials.report_standings(incumbent, challengers)

    def _make_search(self, defaults: TrialResult, look_batch: int | None) -> PlanSearch:
        return self._findings.make_search(
            self._with_choices(defaults, look_batch),
            allows=lambda plan: self._allows(plan) and self._times.is_affordable(plan),
            only=self._only,
        )

    def _has_searched_enough(self) -> bool:
        """Tell whether the trials of earlier searches leave nothing that is worth another."""
        earlier = [r for r in self._findings.results if r.role is Role.DEFAULTS]
        looks = self._findings.look_batch
        if not earlier or not self._knows_enough(self._make_search(earlier[-1], looks)):
            return False
        how = "the best plans so far are confirmed, and --fresh searches anew"
        self._listener(Noted(message=f"{_ENOUGH}: {how}"))
        return True

    def _judge(
        self, incumbent: Entrant, challengers: Sequence[Entrant], search: PlanSearch
    ) -> tuple[Entrant | None, list[Entrant]]:
        """End plans that are shown to be slower; give the fastest one and its challengers."""
        if incumbent.failure is not None:
            self._trials.leave(incumbent, search=search)
            return None, list(challengers)
        staying = []
        for challenger in challengers:
            if challenger.failure is not None:
                self._trials.leave(challenger, search=search)
                continue
            logs = self._trials.pair_logs(incumbent, challenger)
            if not logs:
                if challenger.is_running and incumbent.is_running:
                    staying.append(challenger)
                else:
                    self._trials.leave(challenger, Outcome.NO_TIME, NO_TURN, search=search)
                continue
            self._has_raced = True
            if not self._are_comparable(incumbent.plan, challenger.plan):
                if len(logs) >= LEAST_ROUNDS or self._spare_s() <= 0:
                    self._trials.leave(challenger, search=search)
                else:
                    staying.append(challenger)
                continue
            ahead = median(logs)  # of four, a mean would let one turn that took long decide
            self._trials.noise.learn(f"{incumbent.plan} {challenger.plan}", logs)
            sure = self._trials.noise.half_width(len(logs))
            is_over = len(logs) >= _MOST_ROUNDS or self._spare_s() <= 0
            if ahead + sure < 0:
                slower = 100 * (math.exp(-ahead) - 1)
                reason = f"{slower:.0f} % more time per sample than the best plan beside it"
                self._trials.leave(challenger, Outcome.SLOWER, reason, search=search)
            elif (len(logs) >= LEAST_ROUNDS and ahead > sure) or (is_over and ahead > 0):
                self._trials.leave(incumbent, search=search)
                incumbent = challenger
            elif is_over or self._trials.is_behind(challenger, incumbent):
                self._trials.leave(challenger, search=search)
            else:
                staying.append(challenger)
        return incumbent, staying

    def _enter_next(
        self, search: PlanSearch, known: list[Plan], *, may_wait: bool
    ) -> Entrant | None:
        """Let the next plan enter: the best of earlier searches first.

        Args:
            search: Proposes plans.
            known: Plans of earlier searches.
            may_wait: Whether a plan that does not fit beside the others enters once they have left.
        """
        if self._spare_s() <= 0:
            return None
        self._take_later(search, known)
        proposal = None
        if not known:
            if (late := self._waiting) and not self._fits_into_time(late.plan, self._spare_s()):
                search.withdraw(late)
                self._waiting = None
            proposal = self._waiting = self._waiting or self._propose(search)
            if proposal is None:
                return None
        plan = known[0] if proposal is None else proposal.plan
        if may_wait and not self._trials.has_room_for(plan):
            return None
        limit_s = min(self._times.limit_s(plan), self._spare_s())
        if proposal is None:
            return self._trials.enter(known.pop(0), Role.SEARCH, limit_s)
        self._waiting = None
        self._drawn += 1
        role = Role.LOOK if plan.node_batch == self._look_batch else Role.SEARCH
        return self._trials.enter(plan, role, limit_s, proposal)

    def _propose(self, search: PlanSearch) -> Proposal | None:
        """Give the next plan that was never tried, if one is wanted and fits into the time."""
        if not self._may_draw():
            return None
        self._note_turns(search)
        if self._knows_enough(search):
            if not self._has_said_enough:
                self._listener(Noted(message=_ENOUGH))
            self._has_said_enough = True
            return None
        return search.propose(partial(self._fits_into_time, spare_s=self._spare_s()))

    def _may_draw(self) -> bool:
        """Tell whether plans may be tried that never were."""
        limit = self._request.trials
        is_wanted = not self._confirms and (limit is None or self._drawn < limit)
        return is_wanted and not self._findings.crash_alike()

    def _fits_into_time(self, plan: Plan, spare_s: float) -> bool:
        """Tell whether there is time until the final to judge a plan beside the best one."""
        # While the first plans enter there is no leader yet.
        beside = self._leader or next((one.plan for one in self._trials if one.is_running), plan)
        times, pair = self._times, [beside, plan]
        least_s = times.min_s(plan, is_apart=self._trials.race.would_be_apart(pair))
        return times.min_s(plan) <= times.limit_s(plan) and least_s <= spare_s

    def _take_later(self, search: PlanSearch, known: list[Plan]) -> None:
        """Learn from trials that others have stored; a plan that is faster is to be raced here."""
        later = self._findings.take_later()
        for stored in later.own:
            search.learn(stored.result)
            plan, best_s = stored.result.plan, self._findings.best_time_s()
            time_s = self._findings.time_per_sample_s(stored.result)
            is_faster = time_s is not None and (best_s is None or time_s < best_s)
            is_wanted = allows(self._request, plan) and not self._findings.is_look(plan)
            if is_faster and is_wanted and plan not in self._trials.raced:
                known[:] = [plan]  # the latest that is faster than what is known here
        if later.similar:
            search.learn_similar(later.similar)

    def _note_turns(self, search: PlanSearch) -> None:
        """Tell the search what plans that still race have shown: the best of all is one of them."""
        for entrant, proposal in self._trials.proposed():
            if entrant.turns_s and entrant.failure is None:
                search.note(proposal, self._trials.without_drift(entrant.result()))

    def _knows_enough(self, search: PlanSearch) -> bool:
        """Tell whether no untried plan is expected to gain what trials can show."""
        timed = sum(1 for r in self._findings.results if r.outcome.has_times and r.measurement)
        if timed < _LEAST_TRIALS or any(self._trials.proposed()):
            return False
        return search.expected_gain() < WORTHWHILE_GAIN

    def _most_challengers(self) -> int:
        """Give how many plans race beside the incumbent at most, where they fit into memory."""
        if self._findings.uses_gpus or self._trials.race.is_apart:
            return 1
        is_known = any(entrant.peak_memory_bytes for entrant in self._trials)
        return _CHALLENGERS if is_known else 1

    def _enter_defaults(self) -> Entrant:
        limit_s = max(self._times.usual_s(), self._trials.remaining_s() / 2)
        plan, role = self._findings.defaults_plan, Role.DEFAULTS
        # What is compared with it later, the final measures. On a GPU it shows nothing of looks.
        if self._look_batch is not None and not plan.gpus:
            plan, role = replace(plan, node_batch=self._look_batch), Role.LOOK
        entrant = self._trials.enter(plan, role, limit_s)
        for _ in range(LEAST_ROUNDS):
            self._trials.race.run_round([entrant], until=self._trials.deadline)
        return entrant

    def _spare_s(self) -> float:
        """Give the time until the final."""
        return self._trials.remaining_s() - self._final.reserve_s(self._leader)

    def _begin_with_looks(self) -> None:
        """Try plans with a smaller batch than they may be chosen with, where steps take long."""
        findings = self._findings
        self._look_batch = findings.look_batch
        if self._look_batch is not None:
            self._final.is_first_with_whole_batches = True
            message = explain_looks(findings.case, self._look_batch, findings.least_batch)
            self._listener(Noted(message=message))

    def _allows(self, plan: Plan) -> bool:
        """Tell whether the user allows a plan, or the one that it is a look at."""
        if plan.node_batch == self._look_batch:
            plan = replace(plan, node_batch=self._findings.least_batch)
        return allows(self._request, plan)

    def _are_comparable(self, one: Plan, other: Plan) -> bool:
        """Tell whether two times per sample can be held against each other."""
        if self._look_batch is None:
            return True
        return self._findings.is_look(one) == self._findings.is_look(other)

    def _finalists(self, search: PlanSearch) -> list[Plan]:
        """Give the plans of the final: by their own times, or by what all looks together say."""
        if self._look_batch is None:
            # Where there was time for the defaults alone, they have won against nothing.
            leader = self._leader if self._has_raced else None
            return self._final.finalists(leader, search if self._may_draw() else None)
        findings = self._findings
        ranked = [plan for plan in search.rank_tried() if self._allows(plan)]
        if not ranked:
            return [findings.defaults_plan]
        finalists = choose_whole_plans(
            ranked,
            findings.case,
            look_batch=self._look_batch,
            measured=[candidate.plan for candidate in findings.candidates()],
            defaults=findings.defaults_plan,
        )
        return self._final.with_exact(finalists)

    def _with_choices(self, defaults: TrialResult, look_batch: int | None) -> CaseFacts:
        """Put the user's limits into the search space, and leave out what takes too long.

        Args:
            defaults: What PyTorch's defaults have shown; they may have failed.
            look_batch: With which plans are looked at.
        """
        # How long a GPU waits for its input says nothing of CPUs; plans that are named are tried.
        measured, on_cpu = defaults.measurement, "cpu" in defaults.plan.devices
        input_share = measured.input_share if measured and on_cpu and self._only is None else None
        # By the cores again: no batch comes in later, and plans may be faster than the defaults.
        # What is too large as far as plans are known now, `TrialTimes.is_affordable` leaves out.
        cores = self._findings.node.cpu.usable_cores
        limited = limit_choices(
            self._findings.case,
            self._request,
            least_time_per_sample_s=_STEPS_OF_TRIAL * (time_per_sample_s(defaults) or 0.0) / cores,
            cores=cores,
            input_share=input_share,
        )
        return replace(limited, look_batch=look_batch)
