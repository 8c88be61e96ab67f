"""Variations of a plan: each setting one step up and down, with what that does to its speed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from statistics import fmean, stdev
from typing import Any

from launch.case_facts import CaseFacts
from launch.errors import InvalidPlanError, UnknownStrategyError
from launch.plan import ALLOCATORS, INPUTS, MEMORY_FORMATS, Plan
from launch.process_environment.openmp import WAIT_POLICIES, WAIT_POLICY
from launch.scripts.environment import OWN_SETTINGS
from launch.strategies import check_plan
from planner.plans.measured_steps import MeasuredSteps
from planner.scripts.naming import STRATEGY as SCRIPT
from planner.worth.evidence import Evidence
from probes.timing import Interval, student_quantile

LAYOUT = "layout"
IN_LAYOUT = ("processes", "threads_per_process", "replicas")
_FIXED = ("strategy", "devices", OWN_SETTINGS)
_COUNTS = ("node_batch", "micro_batches", "loader_workers")


class Basis(StrEnum):
    """Where the speed of a variation is known from."""

    MEASURED = "measured"
    """Trials of both plans."""

    LINE = "fitted line"
    """The line through step times with other batches."""

    OTHER_PLANS = "other plans"
    """The same change of the same setting, in races of plans that differ from this one in more."""

    UNKNOWN = "not tried"


@dataclass(frozen=True, slots=True, kw_only=True)
class Variation:
    """A plan with one setting changed."""

    setting: str
    value: str
    """In this plan."""

    other: str
    """In the variation."""

    speed: Interval | None
    """Its samples per second / those of the plan; without an interval's width where it is from a
    model; ``None`` where nothing is known."""

    basis: Basis


def vary(
    plan: Plan, evidence: Evidence, facts: CaseFacts | None, steps: MeasuredSteps | None
) -> list[Variation]:
    """Change each setting of a plan by one step, the best change of each setting first.

    Counts go one step up and down, to the nearest that was tried or, where none was, to the half
    and the double. Of a setting without order each other value is a step. Layouts (processes,
    threads, replicas) are those of the same strategy that were tried. Without facts of what is
    trained, settings have the values of trials only.
    """
    tried = {one.plan: settings_of(one.plan) for one in evidence.latest()}
    found: dict[tuple[str, str], Variation] = {}
    for setting, other in _neighbours(plan, evidence, facts):
        value, new = (settings_of(each)[setting] for each in (plan, other))
        speed, basis = evidence.speed_ratio(plan, other), Basis.MEASURED
        if speed is None and setting == "node_batch" and steps is not None:
            speed, basis = _on_line(plan, other, steps), Basis.LINE
        if speed is None:
            speed = _effect(setting, value, new, evidence, tried)
            basis = Basis.OTHER_PLANS if speed else Basis.UNKNOWN
        found[setting, new] = Variation(
            setting=setting, value=value, other=new, speed=speed, basis=basis
        )
    return sorted(
        found.values(),
        key=lambda v: (v.speed is None, v.setting, -v.speed.median if v.speed else 0.0),
    )


class _Settings(dict[str, str]):
    """Settings by name. An option that a plan lacks is ``default``."""

    def __missing__(self, name: str) -> str:
        return "default"


def settings_of(plan: Plan) -> Mapping[str, str]:
    """Give every setting of a plan as text; its processes, threads and replicas are one."""
    values = {f.name: getattr(plan, f.name) for f in fields(Plan) if f.name not in IN_LAYOUT}
    values |= values.pop("options")
    if plan.strategy == SCRIPT:  # follows from the user's own batch, and the processes
        values.pop("node_batch")
    parts = max(plan.processes, plan.replicas)
    layout = f"{parts}x{plan.threads // parts}"
    if plan.replicas not in (1, plan.processes):
        layout += f" in {plan.replicas} replicas"
    texts = {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in values.items()
    }
    return _Settings(texts | {LAYOUT: layout})


def only_difference(one: Plan, other: Plan) -> str | None:
    """Name the one setting in which plans of a strategy differ; ``None`` if there is none."""
    before, after = settings_of(one), settings_of(other)
    changed = [name for name in {**before, **after} if before[name] != after[name]]
    return changed[0] if len(changed) == 1 and changed[0] not in _FIXED else None


def _neighbours(
    plan: Plan, evidence: Evidence, facts: CaseFacts | None
) -> Iterator[tuple[str, Plan]]:
    tried = [
        (setting, result.plan)
        for result in evidence.latest()
        if (setting := only_difference(plan, result.plan)) is not None
    ]
    if plan.strategy == SCRIPT:  # what can be varied, the user alone knows
        yield from tried
        return
    yield from ((setting, other) for setting, other in tried if setting not in _COUNTS)
    for name in _COUNTS:
        now = getattr(plan, name)
        known = [getattr(other, name) for setting, other in tried if setting == name]
        for wanted in (
            max((value for value in known if value < now), default=now // 2),
            min((value for value in known if value > now), default=2 * now or 1),
        ):
            if (other := _changed(plan, name, wanted)) is not None:
                yield name, other
    for name, values in _choices(plan, facts).items():
        for value in values:
            if (other := _changed(plan, name, value)) is not None:
                yield name, other


def _choices(plan: Plan, facts: CaseFacts | None) -> Mapping[str, tuple[Any, ...]]:
    """Give the values that settings without order can have here."""
    if facts is None:
        return {}
    on_gpu = "cpu" not in plan.devices
    inputs = tuple(facts.inputs) + (("device",) if on_gpu and "cache" in facts.inputs else ())
    uses_linear = not on_gpu and not plan.compile and plan.precision == "fp32"
    return {
        "memory_format": MEMORY_FORMATS,
        "allocator": tuple(name for name in ALLOCATORS if name in facts.allocators),
        "input": tuple(name for name in INPUTS if name in inputs),
        "fused_optimizer": (False, True) if facts.has_fused_optimizer else (),
        "onednn_linear": (False, True) if uses_linear else (),
        "compile": (False, True) if facts.can_compile else (),
        "cuda_graph": (False, True) if on_gpu else (),
        WAIT_POLICY: WAIT_POLICIES,
    }


def _changed(plan: Plan, name: str, value: Any) -> Plan | None:
    """Give a plan with another value of a setting; ``None`` where its strategy has no such plan."""
    changes = {name: value}
    if name == WAIT_POLICY:  # an option
        others = {option: one for option, one in plan.options.items() if option != name}
        changes = {"options": others if value == WAIT_POLICIES[0] else {**others, name: value}}
    try:
        other = replace(plan, **changes)
        check_plan(other)
    except (InvalidPlanError, UnknownStrategyError):
        return None
    return None if other == plan else other


def _on_line(plan: Plan, other: Plan, steps: MeasuredSteps) -> Interval | None:
    if len(steps.points) < 2:
        return None
    line = steps.step_time
    now, new = (line.at(each.node_batch) / each.node_batch for each in (plan, other))
    return Interval(median=now / new, low=now / new, high=now / new, count=0)


def _effect(
    setting: str,
    value: str,
    new: str,
    evidence: Evidence,
    tried: Mapping[Plan, Mapping[str, str]],
) -> Interval | None:
    """Give by how much a change of a single setting changed the speed, in whichever plans.

    Plans that were not raced against each other say nothing: what a machine did in between may be
    more than any setting does. The interval has two parts, of pairs and between them: a change may
    do more in one plan than in another.
    """
    before: dict[tuple[tuple[str, str], ...], Plan] = {}
    after = dict(before)
    for plan, settings in tried.items():
        others = tuple(sorted(item for item in settings.items() if item[0] != setting))
        if settings[setting] == value:
            before[others] = plan
        elif settings[setting] == new:
            after[others] = plan
    found = [
        speed
        for others in before.keys() & after.keys()
        if (speed := evidence.raced_ratio(before[others], after[others])) is not None
    ]
    if not found:
        return None
    logs = [math.log(speed.median) for speed in found]
    centre = fmean(logs)
    # What others may have slowed reaches to one side alone.
    down = math.hypot(*(math.log(speed.median / speed.low) for speed in found)) / len(found)
    up = math.hypot(*(math.log(speed.high / speed.median) for speed in found)) / len(found)
    if len(logs) > 1:
        between = student_quantile(len(logs) - 1) * stdev(logs) / math.sqrt(len(logs))
        down, up = math.hypot(down, between), math.hypot(up, between)
    low, median, high = (math.exp(centre + side) for side in (-down, 0.0, up))
    return Interval(median=median, low=low, high=high, count=len(found))
