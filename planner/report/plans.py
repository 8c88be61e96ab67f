"""Stored plans as a table, as CSV, and one by one with their evidence."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from launch.plan import Plan
from launch.scripts.environment import OWN_SETTINGS
from planner.plans.objective import describe_objective
from planner.plans.stored_plan import StoredPlan
from planner.quantities import (
    format_bytes,
    format_count,
    format_duration,
    format_interval,
    format_number,
    format_range,
    format_seconds,
    is_unreliable,
    with_ends,
)
from planner.report.plan_line import describe_settings
from planner.report.table import Column, Terminal, render_csv, render_facts, render_table
from planner.scripts.naming import STRATEGY as SCRIPT
from planner.scripts.naming import describe_trained, hides_workers, is_script
from planner.trials.result import TrialResult
from planner.tuning.disturbances import END_OTHERS, find_remedies
from planner.tuning.study import StoredTrial
from probes import codec
from probes.timing import Interval

_COLUMNS = (
    Column(key="id", title="ID", right=True),
    Column(key="use_case", title="USE CASE", may_cut=True, cuts_start=True),
    Column(key="data", title="DATA"),
    Column(key="node", title="HOST", may_cut=True),
    Column(key="strategy", title="STRATEGY"),
    Column(key="settings", title="SETTINGS", moves_below=True),
    Column(key="throughput", title="SAMPLES/S", right=True),
    Column(key="speedup", title="SPEEDUP", right=True),
    Column(key="memory", title="MEMORY", right=True, may_drop=True),
    Column(key="created", title="CREATED", may_drop=True),
    Column(key="doubts", title="DOUBTS", is_remark=True),
    Column(key="stale", title="STALE", is_remark=True),
)

GENERATED = "generated: the use case made its samples up, as --data named none"
"""What is said of results whose data are no real ones."""

PLAN_FIELDS = tuple(setting.name for setting in fields(Plan))

_FIELDS = (
    *("id", "use_case", "node", "fingerprint", *PLAN_FIELDS),
    *(f"throughput_samples_per_s_{part}" for part in ("median", "ci_low", "ci_high", "samples")),
    *(f"speedup_{part}" for part in ("median", "ci_low", "ci_high")),
    *(f"baseline_{part}" for part in ("strategy", "node_batch", "throughput_samples_per_s")),
    *("comparisons", "peak_memory_bytes", "created_at"),
    *("step_time_fixed_s", "step_time_per_sample_s", "step_time_points", "gradient_bytes"),
    *("begins_early", "use_case_digest", "objective", "is_generated", "peak_device_memory_bytes"),
    *(f"software_{part}" for part in ("python", "torch", "ddlplan")),
    "stale",
)

PlanWithReasons = tuple[StoredPlan, Sequence[str]]
"""A plan with the reasons why it is stale."""


def plans_table(plans: Sequence[PlanWithReasons], terminal: Terminal) -> str:
    """Give plans as a table, a line each."""
    return render_table([_row(stored, reasons) for stored, reasons in plans], _COLUMNS, terminal)


def plans_csv(plans: Sequence[PlanWithReasons]) -> str:
    """Give plans as CSV, with every field."""
    records = [flatten(stored.to_json(stale=bool(reasons))) for stored, reasons in plans]
    return render_csv(records, _FIELDS)


def plan_text(
    stored: StoredPlan, reasons: Sequence[str], trials: Sequence[StoredTrial], terminal: Terminal
) -> str:
    """Give what `plan_facts` gives, a line for each fact."""
    return render_facts(plan_facts(stored, reasons, trials), terminal)


def plan_facts(
    stored: StoredPlan, reasons: Sequence[str], trials: Sequence[StoredTrial]
) -> list[tuple[str, str]]:
    """Give a plan with its evidence as names and texts; ``reasons`` say why it is stale."""
    throughput = stored.throughput_samples_per_s
    gpu = format_bytes(stored.peak_device_memory_bytes)
    measured = format_count(throughput.count, "measurement")
    results = [trial.result for trial in trials]
    rate = f"{format_range(throughput)} samples/s, from {measured}"
    facts = [
        ("plan", str(stored.id)),
        ("script" if is_script(stored.use_case) else "use case", describe_trained(stored.use_case)),
        *([("data", GENERATED)] if stored.is_generated else []),
        ("host", f"{stored.node} ({stored.fingerprint[:19]})"),
        *plan_settings(stored).items(),
        ("throughput", rate + doubt(throughput, results)),
        ("speedup", _speedup(stored, results)),
        ("peak memory", format_bytes(stored.peak_memory_bytes) or "not known"),
        *([("GPU memory", gpu)] if gpu else []),
        *_step_facts(stored),
        *objective_facts(stored),
        ("found", f"{stored.created_at:%Y-%m-%d %H:%M} UTC"),
        ("software", ", ".join(f"{name} {value}" for name, value in stored.software.items())),
    ]
    if trials:
        facts.append(("evidence", _evidence(trials)))
    return [*facts, ("stale", "; ".join(reasons) or "no")]


def doubt(value: Interval, results: Sequence[TrialResult] | None) -> str:
    """Say at the end of a figure's line that it is not reliable; nothing where it is.

    What disturbed the turns of its search's trials decides on the remedy; both usual ones are named
    where these are not at hand.
    """
    if not is_unreliable(value):
        return ""
    if results is None:
        return "; not reliable: tune again on a quiet machine or with a larger --budget"
    remedies = find_remedies(results)
    first = ", ".join(remedy for remedy in remedies if remedy != END_OTHERS)
    again = "tune again" if remedies else "tune again with a larger --budget"
    if END_OTHERS in remedies:
        again += " on a quiet machine"
    return f"; not reliable: {first} and {again}" if first else f"; not reliable: {again}"


def doubts(stored: StoredPlan, results: Sequence[TrialResult] | None = None) -> str:
    """Name the figures in a plan's row that are not reliable, for a remark below it."""
    figures = (("samples/s", stored.throughput_samples_per_s), ("speedup", stored.speedup))
    said = {name: doubt(value, results) for name, value in figures if value is not None}
    names = [name for name, text in said.items() if text]
    return " and ".join(names) + said[names[0]].removeprefix(";") if names else ""


def _step_facts(stored: StoredPlan) -> list[tuple[str, str]]:
    if stored.plan.strategy == SCRIPT:  # its batch is not varied alone, its gradients are its own
        return []
    gradients = format_bytes(stored.gradient_bytes) or "not known"
    return [("step time", _step_time(stored)), ("gradients", gradients)]


def objective_facts(stored: StoredPlan) -> list[tuple[str, str]]:
    """Say what a plan was chosen for, where that is not throughput, and what is predicted."""
    if (objective := stored.objective) is None:
        return []
    plan, rate = stored.plan, stored.throughput_samples_per_s
    worth = objective.efficiency_range(plan.node_batch, plan.lr_scaling)
    worth_text = with_ends(worth.median, worth.low, worth.high)
    facts = [
        ("objective", f"{objective.name}: {describe_objective(objective)}"),
        (
            "worth",
            f"a sample in batches of {plan.node_batch} is worth {worth_text} of one in "
            f"{objective.base_batch}, learning rate scaling {plan.lr_scaling}",
        ),
    ]
    if objective.target is not None:
        predicted = objective.predict_s(plan.node_batch, plan.lr_scaling, rate)
        said = (
            "not predicted: the short training did not reach it"
            if predicted is None
            else f"reached after about {format_duration(predicted.median)} "
            f"({format_duration(predicted.low)} to {format_duration(predicted.high)}), predicted"
        )
        facts.append(("target", f"{objective.target}: {said}"))
    return facts


def flatten(values: Mapping[str, Any]) -> dict[str, Any]:
    """Join the keys of inner objects to the outer ones; lists and options become JSON text."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict) and key not in ("options", "parameters", "objective"):
            flat |= {f"{key}_{inner}": item for inner, item in flatten(value).items()}
        elif isinstance(value, dict | list):
            flat[key] = json.dumps(value, sort_keys=True)
        else:
            flat[key] = value
    return flat


def _row(stored: StoredPlan, reasons: Sequence[str]) -> dict[str, str]:
    return {
        "id": str(stored.id),
        "use_case": describe_trained(stored.use_case),
        "data": "generated" if stored.is_generated else "",
        "node": stored.node,
        "strategy": stored.plan.strategy,
        "settings": describe_settings(stored.plan),
        "throughput": format_interval(stored.throughput_samples_per_s),
        "speedup": format_interval(stored.speedup),
        "memory": format_bytes(stored.peak_memory_bytes),
        "created": f"{stored.created_at:%Y-%m-%d}",
        "doubts": doubts(stored),
        "stale": f"stale: {'; '.join(reasons)}" if reasons else "",
    }


def plan_settings(stored: StoredPlan) -> dict[str, str]:
    """Give every setting of a plan as text, by its name with spaces; of a script's, what it has."""
    plan = stored.plan
    if plan.strategy == SCRIPT:
        return _script_settings(stored)
    values = codec.to_builtins(plan)
    values.pop("options")
    values["devices"] = " ".join(plan.devices)
    settings = {
        name.removeprefix("node_").replace("_", " "): str(value) for name, value in values.items()
    }
    return settings | {f"option {name}": str(value) for name, value in plan.options.items()}


def _script_settings(stored: StoredPlan) -> dict[str, str]:
    """Give the settings that can be made from outside of a script."""
    plan = stored.plan
    settings = {
        "processes": str(plan.processes),
        "threads per process": str(plan.threads_per_process),
        "samples per step": str(plan.node_batch),
        "allocator": plan.allocator,
    }
    if not hides_workers(stored.use_case):
        settings["loader workers"] = str(plan.loader_workers)
    if plan.options.get(OWN_SETTINGS):
        settings = {"as it is": "nothing is set around the script", **settings}
    return settings | {
        name.replace("_", " "): str(value)
        for name, value in plan.options.items()
        if name != OWN_SETTINGS
    }


def _speedup(stored: StoredPlan, results: Sequence[TrialResult]) -> str:
    baseline = stored.baseline
    if stored.speedup is None or baseline is None:
        return "not known: the plan and the baseline had no turns side by side"
    over = (
        "the script as it is"
        if baseline.strategy == SCRIPT
        else f"{baseline.strategy} with batch {baseline.node_batch}"
    )
    rate = format_number(baseline.throughput_samples_per_s)
    found = f"{format_range(stored.speedup)} over {over}: {rate} samples/s"
    return found + doubt(stored.speedup, results)


def _step_time(stored: StoredPlan) -> str:
    steps = stored.step_time
    if steps is None or len(steps.points) < 2:
        return "not measured with other batches"
    line = steps.step_time
    batches = ", ".join(str(point.node_batch) for point in steps.points)
    batch, rate = stored.plan.node_batch, stored.throughput_samples_per_s.median
    if steps.contradicts(batch, rate):
        return (
            f"unclear: by trials with batches of {batches} a step of {batch} takes "
            f"{format_seconds(line.at(batch))}, by the throughput {format_seconds(batch / rate)}"
        )
    return (
        f"{format_seconds(line.fixed_s)} + {format_seconds(line.per_sample_s)} a sample, "
        f"a fit to batches of {batches}"
    )


def _evidence(trials: Sequence[StoredTrial]) -> str:
    outcomes = Counter(trial.result.outcome.value for trial in trials)
    counts = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common())
    return f"{format_count(len(trials), 'trial')} of study {trials[0].study_id}: {counts}"
