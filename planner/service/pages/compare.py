"""Compare: plans, trainings or machines side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from planner.api import machines, plans, trainings
from planner.api.plans import FoundPlan
from planner.quantities import format_bytes, format_interval
from planner.report.comparison import PlanComparison
from planner.report.figures.machine_figures import limit_figures
from planner.report.figures.plan_figures import compared_plans_figure
from planner.report.figures.training_figures import compared_figures
from planner.report.hardware import hardware_facts
from planner.report.plans import plan_settings
from planner.report.training_comparison import training_facts
from planner.scripts.naming import describe_trained
from planner.service.pages.query import find_numbers
from planner.service.pages.view import Context, PageRequest, View, reasons_here

_MOST = 6


def show(request: PageRequest, context: Context) -> View:
    """Show the things that the query names by ``plan``, ``training`` or ``machine``."""
    chosen = {kind: find_numbers(request, kind, most=_MOST) for kind in _KINDS}
    kind = next((kind for kind in _KINDS if chosen[kind]), None)
    values: Mapping[str, object] = {} if kind is None else _KINDS[kind](chosen[kind], context.db)
    return View(
        template="compare.html",
        title="Compare",
        values={
            "conclusions": [],
            **values,
            "kind": kind,
            "numbers": {one: " ".join(map(str, chosen[one])) for one in _KINDS},
            "most": _MOST,
        },
        topics=[f"{kind}:{number}" for number in chosen[kind]] if kind else [],
    )


def _compare_plans(numbers: Sequence[int], db: str) -> Mapping[str, object]:
    found = [plans.get(number, db=db) for number in numbers]
    facts = [_plan_facts(one) for one in found]
    first, *others = (one.stored for one in found)
    said: list[str] = []
    for other in others:
        comparison = PlanComparison(first, other)
        said += [comparison.conclusion, *comparison.warnings]
    return {
        "names": [f"Plan {one.stored.id}" for one in found],
        "links": [f"/plans/{one.stored.id}" for one in found],
        "rows": _rows(facts),
        "figures": [compared_plans_figure([one.stored for one in found])],
        "conclusions": list(dict.fromkeys(said)),
    }


def _plan_facts(found: FoundPlan) -> dict[str, str]:
    one = found.stored
    return {
        "use case": describe_trained(one.use_case),
        **({"data": "generated"} if one.is_generated else {}),
        "machine": one.node,
        "samples/s": format_interval(one.throughput_samples_per_s),
        "times PyTorch's defaults": format_interval(one.speedup),
        "peak memory": format_bytes(one.peak_memory_bytes),
        "stale": "; ".join(reasons_here(found.stale_reasons)) or "no",
        **plan_settings(one),
        "found": f"{one.created_at:%Y-%m-%d %H:%M} UTC",
        "hardware": one.fingerprint[:19],
        **one.software,
    }


def _compare_trainings(numbers: Sequence[int], db: str) -> Mapping[str, object]:
    found = [trainings.get(number, db=db) for number in numbers]
    return {
        "names": [f"Training {one.id}" for one in found],
        "links": [f"/trainings/{one.id}" for one in found],
        "rows": _rows([training_facts(one, {}) for one in found]),
        "figures": compared_figures(found),
    }


def _compare_machines(numbers: Sequence[int], db: str) -> Mapping[str, object]:
    found = [machines.get(number, db=db) for number in numbers]
    facts = [dict(hardware_facts(one.hardware)) if one.hardware else {} for one in found]
    return {
        "names": [one.name for one in found],
        "links": [f"/machines/{one.id}" for one in found],
        "rows": _rows(facts),
        "figures": limit_figures([(one.name, one.hardware) for one in found]),
    }


def _rows(facts: Sequence[Mapping[str, str]]) -> list[tuple[str, list[str], bool]]:
    """Give each fact with its values, and whether they differ."""
    names = list(dict.fromkeys(name for one in facts for name in one))
    values = {name: [one.get(name, "") for one in facts] for name in names}
    return [(name, texts, len(set(texts)) > 1) for name, texts in values.items()]


_KINDS = {"plan": _compare_plans, "training": _compare_trainings, "machine": _compare_machines}
