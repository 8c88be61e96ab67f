"""Effects of settings: what each would change in a study's best plan, by all trials at once.

Where `variations` names only changes that two trials show by themselves, this asks the model that
the search learns (`planner.search.effects`): trials that differ in several settings count too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from launch.case_facts import CaseFacts
from launch.errors import InvalidPlanError
from launch.plan import Plan
from launch.scripts.program import BATCH
from planner.search.effects import Effects, ObservedTime, TermColumns
from planner.search.prior import Prior
from planner.trials.result import TrialResult
from planner.worth.variations import IN_LAYOUT, LAYOUT, settings_of
from probes.hardware import Hardware
from probes.timing import NORMAL_95, Interval

_MOST_TRIALS = 150
"""The latest of a study: the time that learning takes grows with the cube of their number."""

_FIXED = ("strategy", "devices")
_OF_PLANS = frozenset(each.name for each in fields(Plan))


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingEffect:
    """What another value of one setting would do to the best plan."""

    setting: str
    value: str
    """That the best plan has."""

    other: str
    speed: Interval
    """Samples per second with the other value / with that of the plan; ``count`` is the number of
    trials that had it."""


def learn_effects(
    best: Plan, results: Sequence[TrialResult], facts: CaseFacts, node: Hardware
) -> list[SettingEffect]:
    """Say what each value that was tried would do to a plan, by setting.

    The results are those of its study, the latest last.
    """
    known = [
        (one.plan, rate.median)
        for one in results
        if (rate := one.throughput_samples_per_s()) is not None
    ][-_MOST_TRIALS:]
    changed = list(_changes(best, [plan for plan, _ in known]))
    if not changed:
        return []
    columns = TermColumns(Prior(facts, node, frozenset()).belief)
    effects = Effects(columns, [ObservedTime.of(plan, 1 / rate) for plan, rate in known])
    plans = [best, *(plan for _, _, plan, _ in changed)]
    means, together = effects.covariance(plans)
    here = settings_of(best)
    found = []
    for number, (setting, other, _, count) in enumerate(changed, 1):
        log = float(means[0] - means[number])
        variance = together[0, 0] + together[number, number] - 2 * together[0, number]
        side = NORMAL_95 * math.sqrt(max(float(variance), 0.0))
        speed = Interval(
            median=math.exp(log), low=math.exp(log - side), high=math.exp(log + side), count=count
        )
        found.append(SettingEffect(setting=setting, value=here[setting], other=other, speed=speed))
    return sorted(found, key=lambda one: (one.setting, -one.speed.median))


def _changes(best: Plan, tried: Sequence[Plan]) -> Iterator[tuple[str, str, Plan, int]]:
    """Give each value that differs: setting, value, the plan with it, how many trials had it."""
    here = settings_of(best)
    counts: dict[tuple[str, str], int] = {}
    plans: dict[tuple[str, str], Plan] = {}
    for plan in tried:
        if plan.strategy != best.strategy or plan.devices != best.devices:
            continue
        there = settings_of(plan)
        for setting in {**here, **there}:
            if setting in _FIXED or there[setting] == here[setting]:
                continue
            key = (setting, there[setting])
            counts[key] = counts.get(key, 0) + 1
            if key not in plans and (changed := _with(best, plan, setting)) is not None:
                plans[key] = changed
    for (setting, other), plan in plans.items():
        yield setting, other, plan, counts[setting, other]


def _with(best: Plan, other: Plan, setting: str) -> Plan | None:
    """Give a plan with one setting of another one; ``None`` where the two do not go together."""
    changed: dict[str, Any]
    if setting == LAYOUT:
        changed = {name: getattr(other, name) for name in IN_LAYOUT}
    elif setting in _OF_PLANS:
        changed = {setting: getattr(other, setting)}
    else:
        options = {name: value for name, value in best.options.items() if name != setting}
        if setting in other.options:
            options[setting] = other.options[setting]
        changed = {"options": options}
        if setting == BATCH:  # of a script: its step has other samples, too
            changed["node_batch"] = other.node_batch
    try:
        return replace(best, **changed)
    except InvalidPlanError:
        return None
