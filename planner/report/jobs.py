"""Jobs as a table, and one by one with what they do."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from planner.plans.stored_plan import utc_now
from planner.quantities import format_count, format_duration, format_interval, format_number
from planner.records.job_record import JobKind, JobRecord, JobState
from planner.records.progress import (
    ContenderStanding,
    SearchProgress,
    SweepProgress,
    TrainingProgress,
    WorkProgress,
    find_progress,
)
from planner.report.plan_line import describe_plan
from planner.report.table import Column, Terminal, render_facts, render_table
from probes import codec

_STYLES = {
    JobState.RUNNING: "green",
    JobState.QUEUED: "yellow",
    JobState.FAILED: "red",
    JobState.INTERRUPTED: "red",
}

_COLUMNS = (
    Column(key="id", title="ID", right=True),
    Column(key="state", title="STATE", style=lambda state: _STYLES.get(JobState(state), "")),
    Column(key="machine", title="MACHINE", may_drop=True, may_cut=True),
    Column(key="user", title="USER", may_drop=True, may_cut=True),
    Column(key="begun", title="BEGUN"),
    Column(key="time", title="TIME", right=True),
    Column(key="command", title="COMMAND", may_cut=True),
    Column(key="remark", title="REMARK", is_remark=True),
)


def jobs_table(jobs: Sequence[JobRecord], terminal: Terminal) -> str:
    """Give jobs as a table, a line each, with what runs now and why others failed."""
    return render_table([_row(job) for job in jobs], _COLUMNS, terminal)


def job_text(job: JobRecord, terminal: Terminal) -> str:
    """Give one job, a line for each fact."""
    return render_facts(_facts(job), terminal)


def job_json(job: JobRecord) -> dict[str, Any]:
    """Give a job as plain values for JSON."""
    values: dict[str, Any] = codec.to_builtins(job, null_for_nan=True)
    return values


def _progress_line(job: JobRecord) -> str:
    """Say in one line what a job does, or did last; nothing where it has not said."""
    match job.kind:
        case JobKind.TUNE:
            search = find_progress(job.progress, SearchProgress)
            return "" if search is None else _search_line(search) + _mark(search)
        case JobKind.LAUNCH:
            training = find_progress(job.progress, TrainingProgress)
            return "" if training is None else _training_line(training) + _mark(training)
        case JobKind.SWEEP:
            sweep = find_progress(job.progress, SweepProgress)
            return "" if sweep is None else _sweep_line(sweep) + _mark(sweep)
        case JobKind.PROBE | JobKind.DOCTOR:
            work = find_progress(job.progress, WorkProgress)
            return "" if work is None else work.doing


def _row(job: JobRecord) -> dict[str, str]:
    begun = job.started_at or job.created_at
    return {
        "id": str(job.id),
        "state": str(job.state),
        "machine": job.machine,
        "user": job.user,
        "begun": f"{begun:%m-%d %H:%M}",
        "time": _time(job),
        "command": job.title.removeprefix("ddlplan "),
        "remark": job.error or ("" if job.state.is_over else _progress_line(job)),
    }


def _facts(job: JobRecord) -> list[tuple[str, str]]:
    state = str(job.state)
    if job.cancel_requested_at is not None and not job.state.is_over:
        state = f"{state}, and asked to end"
    facts = [("job", str(job.id)), ("state", state), ("command", job.title)]
    if job.error is not None:
        facts.append(("error", job.error))
    if job.exit_code is not None:
        facts.append(("exit code", str(job.exit_code)))
    kind = "a job" if job.is_detached else "in a terminal"
    facts.append(("runs", f"on {job.machine}, of {job.user}, {kind}"))
    for name, moment in (
        ("created", job.created_at),
        ("begun", job.started_at),
        ("to end", job.cancel_requested_at),
        ("ended", job.ended_at),
    ):
        if moment is not None:
            facts.append((name, _moment(moment)))
    if time_text := _time(job):
        facts.append(("time", time_text))
    for name, number in (
        ("study", job.study_id),
        ("training", job.training_id),
        ("sweep", job.sweep_id),
        ("plan", job.plan_id),
    ):
        if number is not None:
            facts.append((name, str(number)))
    if line := _progress_line(job):
        at = "" if job.progress_at is None else f" ({_moment(job.progress_at)})"
        facts.append(("last" if job.state.is_over else "now", line + at))
    facts += _standings(job)
    if job.folder is not None:
        facts.append(("log", f"{job.folder}/log"))
    return facts


def _standings(job: JobRecord) -> list[tuple[str, str]]:
    if job.kind is not JobKind.TUNE or job.state.is_over:
        return []
    search = find_progress(job.progress, SearchProgress)
    return [] if search is None else [_standing(one) for one in search.standings]


def _standing(one: ContenderStanding) -> tuple[str, str]:
    name = "leads" if one.is_leading else "races" if one.reason is None else "left"
    parts = [describe_plan(one.plan)]
    if one.throughput_samples_per_s is not None:
        parts.append(f"{format_number(one.throughput_samples_per_s)}/s")
    if one.speedup is not None:
        parts.append(f"{format_interval(one.speedup)} times as fast as the leader")
    if one.reason is not None:
        parts.append(one.reason)
    return name, ", ".join(parts)


def _search_line(search: SearchProgress) -> str:
    parts = [search.doing, format_count(search.trials, "trial")]
    if search.best_samples_per_s is not None:
        parts.append(f"best {format_number(search.best_samples_per_s)}/s")
    if search.left_s is not None:
        parts.append(f"{format_duration(search.left_s)} left")
    return ", ".join(part for part in parts if part)


def _training_line(training: TrainingProgress) -> str:
    parts = [training.doing]
    if training.steps:
        parts.append(f"epoch {training.epoch}/{training.epochs}, step {training.steps}")
    if training.loss is not None:
        parts.append(f"loss {training.loss:.3f}")
    if training.throughput_samples_per_s is not None:
        parts.append(f"{format_number(training.throughput_samples_per_s)} samples/s")
    return ", ".join(part for part in parts if part)


def _sweep_line(sweep: SweepProgress) -> str:
    parts = [sweep.doing]
    if sweep.total:
        parts.append(f"step {sweep.steps}/{sweep.total}")
    if sweep.points:
        parts.append(f"{sweep.done} of {sweep.points} points are stored")
    return ", ".join(part for part in parts if part)


def _mark(progress: SearchProgress | TrainingProgress | SweepProgress) -> str:
    return ", generated data" if progress.is_generated else ""


def _time(job: JobRecord) -> str:
    took_s = job.took_s(utc_now())
    return "" if took_s is None else format_duration(took_s)


def _moment(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"
