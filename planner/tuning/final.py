"""Final of a search: its best plans started afresh, and raced with what they are compared with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import permutations, product

from launch.plan import Plan
from planner.search.plan_search import PlanSearch
from planner.trials.comparison import compare_results
from planner.trials.result import Outcome, Role
from planner.tuning.choice import find_finalists
from planner.tuning.entrant import NO_TURN, Entrant
from planner.tuning.findings import Findings
from planner.tuning.looks import MOST_WHOLE_PLANS
from planner.tuning.running_trials import LEAST_ROUNDS, RunningTrials

_LEAST_LIMIT_S = 10.0

_STARTS = 2
"""Times that each plan of the final is started afresh."""

_FEWEST = 2
"""Plans of a second start at least: the best one and PyTorch's defaults."""

_USUAL_ROUNDS, _MOST_RESERVED_ROUNDS = 5, 12
"""Rounds of a start that time is set aside for, at least and at most; in between as many as the
budget has minutes. Eight pairs of AlexNet's turns, as two starts have them, say twice as much as
four or five."""

_ROUNDS_TO_SETTLE, _SETTLED = 8, 0.015
"""Rounds after which a start of the final may end, and the half width of its ratios' intervals
from which on more rounds are not worth their time."""

_PUNCTUAL = 0.98
"""Part of the time left that the final plans with."""

_MARGIN, _RESERVE_MARGIN = 1.1, 1.2
"""How much longer a final may take than its steps until now would, and what is set aside for it."""

_MOST_FINAL_ROUNDS = 20

_LEAST_FINAL_SHARE, _FINAL_SHARE, _LONG_FINAL_SHARE, _FIRST_FINAL_SHARE = 0.2, 0.4, 0.6, 0.7
"""Part of the budget for the final: at least, at most, at most where the run on one core, whose
steps may be the longest of all, must be in it, and where whole batches have not been tried yet."""

_MOST_COMPARED = 2
"""Finalists that are compared with themselves at the use case's own batch."""

_UNTRIED_SHARE = 0.5
"""Part of the time left that a plan may take in the final which was not tried before."""

_RARE_ROUNDS = 3
"""Turns of plans that are timed for comparison alone, at the first start."""

_LARGEST_RARE_SHARE, _LARGEST_SHARE_PART = 0.08, 0.4
"""Part of the budget that such a plan may take, and part of that for a smaller batch of the best
plan, which only a job with other nodes needs."""


class Final:
    """Final of one search: what is stored and claimed rests on its turns.

    Args:
        findings: What the study knows.
        trials: The plans that run.
        clock: Seconds that only go forward.
    """

    def __init__(
        self, findings: Findings, trials: RunningTrials, clock: Callable[[], float]
    ) -> None:
        self._findings = findings
        self._request = findings.request
        self._trials = trials
        self._times = trials.times
        self._clock = clock
        self.is_first_with_whole_batches = False
        """Whether the search has only looked at plans: nothing else shows how fast they are."""

    def finalists(self, leader: Plan | None, search: PlanSearch | None = None) -> list[Plan]:
        """Give the plans that may be the best, and the best in fp32 where rounding was allowed.

        Args:
            leader: The plan that won its races, if one has.
            search: Names the untried plan that is expected to be faster than all, if there is one;
                ``None``: only plans that were tried.
        """
        candidates = self._findings.candidates()
        if not candidates:
            return []
        plans = [candidate.plan for candidate in find_finalists(candidates)]
        if leader in [candidate.plan for candidate in candidates]:
            plans = [leader, *(plan for plan in plans if plan != leader)][: len(plans)]
        if search is not None and (untried := self._expected_fastest(search, plans[0])):
            plans.insert(1, untried)
        return self.with_exact(plans)

    def _expected_fastest(self, search: PlanSearch, best: Plan) -> Plan | None:
        """Give the untried plan that is expected to be faster than all, if there is time for it.

        Often it has a larger batch, of which the steps of smaller ones say enough.
        """
        race, most_s = self._trials.race, _UNTRIED_SHARE * self._trials.remaining_s()

        def fits(plan: Plan) -> bool:
            raced = [best, self._findings.defaults_plan, plan]
            return _STARTS * self._least_time_s([plan]) <= most_s and not race.would_be_apart(raced)

        return search.expected_fastest(fits)

    def with_exact(self, plans: Sequence[Plan]) -> list[Plan]:
        """Give plans, the first one in fp32 as well where rounding was allowed."""
        if self._request.precision == "auto" and plans[0].precision != "fp32":
            exact = replace(plans[0], precision="fp32")
            return [plans[0], exact, *(plan for plan in plans[1:] if plan != exact)]
        return list(plans)

    def run(self, plans: Sequence[Plan], *, is_needed: bool = False) -> None:
        """Start the finalists and what they are compared with afresh, and race them.

        Args:
            plans: The finalists, the best one first; none: no final.
            is_needed: Whether it is held however little time is left.
        """
        defaults, is_first = self._findings.defaults_plan, self.is_first_with_whole_batches
        others = [plan for plan in plans if plan != defaults]
        if not others and not (plans and (self._request.with_baseline or is_first)):
            return
        rare = self._rare_plans(plans)
        least = min(1 if plans[0].precision == "fp32" else 2, len(others))
        must_fit = sum(role is Role.BASELINE for _, role in rare) * self._request.with_baseline
        rare = self._with_room([*others, defaults], rare, must_fit)
        preferred = must_fit + any(role is Role.OWN_BATCH for _, role in rare)
        counts = [range(len(others), least - 1, -1)]
        if is_first:  # nothing but the final tells which of the first two is faster
            counts = [range(len(others), 1, -1), range(min(1, len(others)), least - 1, -1)]
        for starts, rarely, count in _finals(counts, rare, must_fit, preferred):
            # Where time is short, who comes last has no turn: the speedup is over the defaults.
            raced = [*others[: min(1, count)], defaults, *others[1:count]]
            own = [self._findings.subject.at_own_batch(plan) for plan in raced]
            compared = [pair for pair in rarely if pair[1] is not Role.OWN_BATCH or pair[0] in own]
            beside = [plan for plan, _ in compared]
            is_apart = self._trials.race.would_be_apart([*raced, *beside])
            needed_s = starts * self._least_time_s(raced, is_apart=is_apart)
            needed_s += self._least_time_s(beside, is_apart=is_apart)
            if _MARGIN * needed_s < self._trials.remaining_s():
                break
        else:
            if not (is_needed or is_first):
                return
        roles = dict(compared)
        roles |= dict.fromkeys(plans, Role.FINAL) | {defaults: Role.DEFAULTS}
        entrants: list[Entrant] = []
        for start in range(starts):
            end = self._clock() + _PUNCTUAL * self._trials.remaining_s() / (starts - start)
            if start == 0:
                for plan in [*raced, *beside]:
                    left_s = max(_LEAST_LIMIT_S, end - self._clock())
                    limit_s = min(self._times.limit_s(plan), left_s)
                    entrants.append(self._trials.enter(plan, roles[plan], limit_s))
            elif not self._start_again(entrants, end):
                break
            self._run_rounds(entrants, end)
            for entrant in entrants:
                entrant.close()
        for entrant in entrants:
            if entrant.failure is None and not entrant.turns_s:
                self._trials.leave(entrant, Outcome.NO_TIME, NO_TURN)
            else:
                self._trials.leave(entrant)

    def _start_again(self, entrants: Sequence[Entrant], end: float) -> bool:
        """Start plans afresh, without the last ones where time is short; false: there is none.

        Those that are hardly the best leave their time to the others.
        """
        behind = self._find_behind(entrants)
        again = [
            entrant
            for entrant in entrants
            if entrant.has_not_failed and not entrant.role.is_rare and entrant not in behind
        ]
        while len(again) > _FEWEST and not self._has_time_again_for(again):
            again.pop()  # the first start took longer than it was expected to
        if not self._has_time_again_for(again):
            return False
        plans = [entrant.plan for entrant in again]
        for entrant in again:
            # A start may have shown that the others do not fit beside it.
            entrant.is_parked = self._trials.race.would_be_apart(plans)
            if not entrant.is_parked:
                limit_s = self._times.limit_s(entrant.plan)
                self._trials.race.restart(entrant, time_limit_s=limit_s, until=end)
        return True

    def _find_behind(self, entrants: Sequence[Entrant]) -> list[Entrant]:
        """Find finalists that their turns show to be behind one of the same precision.

        One that has failed cannot be chosen: those behind it may be the best.
        """
        finalists = [e for e in entrants if e.role is Role.FINAL and e.has_not_failed]
        return [
            one
            for one, other in permutations(finalists, 2)
            if one.plan.precision == other.plan.precision and self._trials.is_behind(one, other)
        ]

    def _run_rounds(self, entrants: Sequence[Entrant], end: float) -> None:
        """Run rounds until the time is up; what is only compared with has a few turns."""
        for number in range(_MOST_FINAL_ROUNDS):
            if number == _RARE_ROUNDS:  # their memory may be what the others lack
                for entrant in entrants:
                    if entrant.role.is_rare:
                        entrant.close()
            running = [e for e in entrants if number < _RARE_ROUNDS or not e.role.is_rare]
            if 0 < number < LEAST_ROUNDS and self._trials.race.is_apart:
                # That each turn is a start may not have been known when they were counted.
                running = self._without_last_rare(running, end)
            is_short = self._clock() + self._trials.round_s(running) > end
            if number >= LEAST_ROUNDS and is_short:
                return
            # One look a start: an interval that is looked at until it is narrow holds less often.
            if number == _ROUNDS_TO_SETTLE and _are_settled(running):
                return
            race = self._trials.race
            if number == 0 and not race.is_apart:
                race.run_first_round(running, until=end, least=LEAST_ROUNDS)
            else:
                if is_short and not race.is_apart:
                    race.go_forwards()  # the best plan and the defaults lose turns last
                race.run_round(running, until=end)
            self._trials.report_standings(entrants[0], entrants[1:])

    def _without_last_rare(self, entrants: Sequence[Entrant], end: float) -> list[Entrant]:
        """Leave out plans that are only compared with, the last first, until a round fits in."""
        kept = list(entrants)
        for entrant in reversed(entrants):
            if self._clock() + self._trials.round_s(kept) <= end:
                break
            if entrant.role.is_rare:
                kept.remove(entrant)
        return kept

    def _least_time_s(
        self, plans: Sequence[Plan], *, is_apart: bool = False, rounds: int = LEAST_ROUNDS
    ) -> float:
        """Estimate the time of one start of some plans, and of so many rounds."""
        turns_s = sum(self._times.turn_s(plan, is_apart=is_apart) for plan in plans)
        return sum(map(self._times.start_s, plans)) + rounds * turns_s

    def _has_time_again_for(self, entrants: Sequence[Entrant]) -> bool:
        """Tell whether another start and the fewest rounds fit in; turns may be starts by now."""
        plans = [entrant.plan for entrant in entrants]
        is_apart = self._trials.race.would_be_apart(plans)
        return self._least_time_s(plans, is_apart=is_apart) <= self._trials.remaining_s()

    def _rare_plans(self, finalists: Sequence[Plan]) -> list[tuple[Plan, Role]]:
        """Give the plans that the best one is compared with by a few turns.

        One core, as the papers have it; the best plan with the use case's own batch, which shows
        what the settings gain apart from the batch; and with the batches that shares of a job with
        other nodes may have. The second finalist may prove to be the best, a third one hardly; the
        first of another precision is reported beside the best, or chosen in its place.
        """
        findings = self._findings

        def at_own_batch(plans: Sequence[Plan]) -> list[tuple[Plan | None, Role]]:
            return [(findings.subject.at_own_batch(plan), Role.OWN_BATCH) for plan in plans]

        alike = [plan for plan in finalists if plan.precision == finalists[0].precision]
        others = [plan for plan in finalists if plan not in alike]
        baseline = (findings.baseline_plan, Role.BASELINE)
        compared = at_own_batch(alike[:_MOST_COMPARED])
        compared.insert(0 if self._request.with_baseline else len(compared), baseline)
        compared += at_own_batch(others[:1])  # the last ones are left out first
        wanted = [(plan, role) for plan, role in compared if plan is not None]
        shares = findings.subject.shares(finalists[0], findings.current_results())
        wanted += [(plan, Role.SHARE) for plan in shares]
        found: dict[Plan, Role] = {}
        limit_s = _LARGEST_RARE_SHARE * self._request.budget_s
        for plan, role in wanted:
            is_new = plan not in (*finalists, findings.defaults_plan) and plan not in found
            part = _LARGEST_SHARE_PART if role is Role.SHARE else 1.0
            is_needed = role is Role.BASELINE and self._request.with_baseline
            if is_new and (is_needed or self._least_time_s([plan]) <= part * limit_s):
                found[plan] = role
        return list(found.items())

    def _with_room(
        self, raced: Sequence[Plan], rare: list[tuple[Plan, Role]], needed: int
    ) -> list[tuple[Plan, Role]]:
        """Leave out the last of the rare plans where that lets the others run side by side.

        Where it does not, turns are starts, and it is a matter of time how many of them there are.
        """
        for count in range(len(rare), needed - 1, -1):
            if self._trials.fit_side_by_side([*raced, *(plan for plan, _ in rare[:count])]):
                return rare[:count]
        return rare

    def reserve_s(self, leader: Plan | None) -> float:
        """Give the time to set aside for the final."""
        looks = self.is_first_with_whole_batches
        defaults = self._findings.defaults_plan
        plans = (self.finalists(leader) or [defaults])[:2]
        if looks:  # plans that were tried whole may have larger batches than the others
            # Looks are on CPUs, and the defaults may be on a GPU that no wanted strategy has.
            usual = leader if leader is not None and defaults.gpus else defaults
            others = [replace(usual, node_batch=self._findings.least_batch)] * MOST_WHOLE_PLANS
            plans = [*self.finalists(leader), *others][:MOST_WHOLE_PLANS]
        rare = [plan for plan, _ in self._rare_plans(plans)]
        is_apart = self._trials.race.would_be_apart([*plans, defaults])
        rounds = LEAST_ROUNDS if is_apart else self._usual_rounds()
        raced_s = self._least_time_s([*plans, defaults], is_apart=is_apart, rounds=rounds)
        budget_s = self._request.budget_s
        needed_s = _RESERVE_MARGIN * (
            _STARTS * raced_s + self._least_time_s(rare, is_apart=is_apart)
        )
        most_s = (_LONG_FINAL_SHARE if self._request.with_baseline else _FINAL_SHARE) * budget_s
        once = [*plans[:1], defaults]
        once_s = self._least_time_s(once, is_apart=self._trials.race.would_be_apart(once))
        if looks:  # without a final they show nothing that may be chosen
            most_s = max(most_s, min(_RESERVE_MARGIN * once_s, _FIRST_FINAL_SHARE * budget_s))
        elif is_apart:  # less than one start of two plans is no final
            has_tried = any(plan != defaults for plan in self._trials.raced)
            trial_s = 0.0 if has_tried else self._times.min_s(defaults, is_apart=True)
            # Held at once, it fits as it is tested then. A plan that lacks turns has them first:
            # where no more than that is left, nothing could be held after them.
            lacks = any(len(e.turns_s) < LEAST_ROUNDS for e in self._trials if e.is_running)
            margin = _MARGIN if has_tried and not lacks else _RESERVE_MARGIN
            if margin * once_s + trial_s > self._trials.remaining_s():
                return 0.0
            most_s = max(most_s, _RESERVE_MARGIN * once_s)
        return min(max(needed_s, _LEAST_FINAL_SHARE * budget_s), most_s)

    def _usual_rounds(self) -> int:
        by_budget = round(self._request.budget_s / 60)
        return max(_USUAL_ROUNDS, min(by_budget, _MOST_RESERVED_ROUNDS))


def _are_settled(entrants: Sequence[Entrant]) -> bool:
    """Tell whether the first plan's speed is known well enough next to each of the others.

    More rounds would not settle how those that have failed compare: they have no more turns.
    """
    running = [entrant.result() for entrant in entrants if entrant.is_running]
    ratios = [compare_results(other, running[0]) for other in running[1:]]
    return all(ratio and ratio.high - ratio.low <= 2 * _SETTLED * ratio.median for ratio in ratios)


def _finals(
    counts: Sequence[Sequence[int]],
    rare: Sequence[tuple[Plan, Role]],
    needed: int,
    preferred: int,
) -> Iterator[tuple[int, Sequence[tuple[Plan, Role]], int]]:
    """Give starts, plans to compare with and number of finalists, the most telling first.

    Plans to compare with are left out before finalists. But the first ``needed`` of them are left
    out last of all, after the finalists of all ``counts`` but the last; the first ``preferred``
    after a second start.
    """
    numbers = range(len(rare), -1, -1)
    wanted = ([n for n in numbers if n >= needed], [n for n in numbers if n < needed])
    for block, finalists in product(wanted, counts):
        parts = ([n for n in block if n >= preferred], [n for n in block if n < preferred])
        for part, starts in product(parts, range(_STARTS, 0, -1)):
            for count, compared in product(finalists, part):
                yield starts, rare[:compared], count
