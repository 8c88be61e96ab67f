"""Trials as a table, as JSON and as CSV, failed ones with their reason."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from planner.plans.stored_plan import iso_utc
from planner.quantities import format_bytes, format_interval, interval_json
from planner.report.plan_line import describe_settings
from planner.report.plans import PLAN_FIELDS, flatten
from planner.report.table import Column, Terminal, render_csv, render_table
from planner.scripts.naming import describe_trained, hides_workers
from planner.trials.result import Outcome
from planner.tuning.study import StoredTrial
from probes import codec


def _outcome_style(outcome: str) -> str:
    if outcome == Outcome.OK:
        return "green"
    return "red" if Outcome(outcome).has_failed else ""


_COLUMNS = (
    Column(key="study", title="STUDY", right=True, may_drop=True),
    Column(key="number", title="NO", right=True),
    Column(key="use_case", title="USE CASE", may_cut=True, cuts_start=True),
    Column(key="data", title="DATA"),
    Column(key="role", title="ROLE"),
    Column(key="strategy", title="STRATEGY"),
    Column(key="settings", title="SETTINGS", moves_below=True),
    Column(key="outcome", title="OUTCOME", style=_outcome_style),
    Column(key="throughput", title="SAMPLES/S", right=True),
    Column(key="memory", title="MEMORY", right=True, may_drop=True),
    Column(key="gpu_memory", title="GPU MEMORY", right=True, may_drop=True),
    Column(key="elapsed", title="TIME", right=True, may_drop=True),
    Column(key="reason", title="REASON", is_remark=True),
)

_FIELDS = (
    *("id", "study_id", "number", "created_at", "role", "outcome", "reason", "elapsed_s"),
    *("peak_memory_bytes", *PLAN_FIELDS, "parameters"),
    *(f"throughput_samples_per_s_{part}" for part in ("median", "ci_low", "ci_high", "samples")),
    *("compile_s", "warmup_s", "samples_s", "rounds", "drift", "input_share", "log_tail"),
    *("use_case", "is_generated", "peak_device_memory_bytes"),
)


def trials_table(trials: Sequence[StoredTrial], terminal: Terminal) -> str:
    """Give trials as a table, a line each, and the reasons of those that failed."""
    are_of_one = len({trial.use_case for trial in trials}) < 2
    rows = [_row(trial) | ({"use_case": ""} if are_of_one else {}) for trial in trials]
    return render_table(rows, _COLUMNS, terminal)


def trials_csv(trials: Sequence[StoredTrial]) -> str:
    """Give trials as CSV, with every field and every sample."""
    return render_csv([flatten(trial_json(trial)) for trial in trials], _FIELDS)


def trial_json(trial: StoredTrial) -> dict[str, Any]:
    """Give a trial as plain values for JSON, with the keys of its plan beside its own."""
    result, measured = trial.result, trial.result.measurement
    return {
        "id": trial.id,
        "study_id": trial.study_id,
        "use_case": trial.use_case,
        "is_generated": trial.is_generated,
        "number": trial.number,
        "created_at": iso_utc(trial.created_at),
        "role": result.role.value,
        "outcome": result.outcome.value,
        "reason": result.reason,
        "elapsed_s": result.elapsed_s,
        "peak_memory_bytes": result.peak_memory_bytes,
        "peak_device_memory_bytes": result.peak_device_memory_bytes,
        **codec.to_builtins(result.plan),
        **({"loader_workers": None} if hides_workers(trial.use_case or "") else {}),
        "parameters": dict(result.parameters),
        "throughput_samples_per_s": interval_json(
            result.throughput_samples_per_s(), with_samples=True
        ),
        "compile_s": result.compile_s,
        "warmup_s": list(measured.warmup_s) if measured else [],
        "samples_s": list(measured.samples_s) if measured else [],
        "rounds": list(measured.rounds) if measured else [],
        "drift": measured.drift if measured else None,
        "input_share": measured.input_share if measured else None,
        "log_tail": result.log_tail,
    }


def _row(trial: StoredTrial) -> dict[str, str]:
    result = trial.result
    return {
        "study": str(trial.study_id),
        "number": str(trial.number),
        "use_case": describe_trained(trial.use_case or ""),
        "data": "generated" if trial.is_generated else "",
        "role": result.role.value,
        "strategy": result.plan.strategy,
        "settings": describe_settings(result.plan),
        "outcome": result.outcome.value,
        "throughput": format_interval(result.throughput_samples_per_s()),
        "memory": format_bytes(result.peak_memory_bytes),
        "gpu_memory": format_bytes(result.peak_device_memory_bytes),
        "elapsed": f"{result.elapsed_s:.0f} s",
        "reason": result.reason or "",
    }
