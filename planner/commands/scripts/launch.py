"""The command ``ddlplan launch -- ...``."""

from __future__ import annotations

import os
from collections.abc import Sequence

from launch.plan import Plan
from launch.reports import Report
from launch.scripts.environment import patches_of
from planner.api.scripts.launching import (
    PreparedScript,
    ScriptRun,
    launch_script,
    prepare_script,
)
from planner.commands.training import compare_rates
from planner.plans.stored_plan import StoredPlan
from planner.quantities import format_count, format_duration
from planner.records.job_record import JobKind
from planner.report.live import LiveDisplay
from planner.report.output import Output
from planner.report.plan_line import describe_plan
from planner.report.table import WithCommand
from planner.scripts.naming import shell_line
from planner.supervision.own_job import OwnJob, recorded_job
from planner.trainings.recorder import TrainingRecorded
from planner.trials.reports import Listener


def launch(
    command: Sequence[str],
    db: str,
    out: Output,
    *,
    plan_id: int | None,
    allow_stale: bool,
    dry_run: bool,
) -> None:
    """Run a script with its stored plan, or show what would be started."""
    prepared = prepare_script(command, db=db, plan_id=plan_id, allow_stale=allow_stale)
    if dry_run:
        _describe(prepared, out)
        return
    stored, display = prepared.stored, LiveDisplay(out)  # not on screen: that is the script's
    with recorded_job(db, JobKind.LAUNCH) as job:
        job.report(plan_id=stored.id)
        out.note(tell_plan(stored, prepared.reasons))
        warn_of_changes(stored.plan, out)
        listener = tell_training(job, display)
        run = launch_script(prepared, db=db, listener=listener, keeps_stdout=out.as_json)
    out.note(f"done in {format_duration(run.elapsed_s)}; {_compare(run, out)}")
    out.finish(
        {
            **_plain(prepared),
            "elapsed_s": run.elapsed_s,
            "throughput_samples_per_s": run.samples_per_s,
            "expected_throughput_samples_per_s": stored.throughput_samples_per_s.median,
            "training": run.training_id,
        }
    )


def tell_plan(stored: StoredPlan, reasons: Sequence[str]) -> str:
    """Say which plan is used, and why it is stale, if it is."""
    remark = f" (stale, {', '.join(reasons)})" if reasons else ""
    return f"plan {stored.id}{remark}: {describe_plan(stored.plan)}"


def tell_training(job: OwnJob, then: Listener) -> Listener:
    """Make a listener that tells a job which training was begun for it, and passes reports on."""

    def listen(report: Report, host: str | None = None, /) -> None:
        if isinstance(report, TrainingRecorded):
            job.report(training_id=report.training_id)
        then(report, host)

    return listen


def warn_of_changes(plan: Plan, out: Output) -> None:
    """Warn of what a plan changes in the script itself."""
    if changes := patches_of(plan):
        out.warn(f"the plan changes the script itself: {', '.join(changes)}")


def _compare(run: ScriptRun, out: Output) -> str:
    """Say how fast it was beside what its plan has on record; warn where it was much slower."""
    stored, measured = run.prepared.stored, run.samples_per_s
    expected = stored.throughput_samples_per_s
    said = f"expected {expected.median:.1f} samples/s ({expected.low:.1f} to {expected.high:.1f})"
    if run.counted is None or measured is None:
        return f"{said}, not measured: its steps were not seen"
    if run.batch != stored.plan.node_batch:
        said += f" in steps of {format_count(stored.plan.node_batch, 'sample')}"
        return f"{said}, measured {measured:.1f} in steps of {run.batch}"
    shown = compare_rates(
        measured,
        expected.median,
        expected,
        time_s=run.counted.time_s,
        remedy="the plan's trials: another process may be using the cores; if it always is, tune "
        "again",
        warn=out.warn,
    )
    return f"expected {shown}"


def _describe(prepared: PreparedScript, out: Output) -> None:
    """Show the command line, with the variables before it."""
    start = prepared.start
    out.write_fact("plan", f"{prepared.stored.id}: {describe_plan(prepared.stored.plan)}")
    cores = ",".join(map(str, start.cores or sorted(os.sched_getaffinity(0))))
    out.write_fact("cores", cores)
    out.write_fact("command", WithCommand("", shell_line(start.environment, start.command)))
    out.finish(_plain(prepared))


def _plain(prepared: PreparedScript) -> dict[str, object]:
    """Give what runs under the names that scripts rely on."""
    start = prepared.start
    return {
        "plan": prepared.stored.to_json(stale=bool(prepared.reasons)),
        "command": list(start.command),
        "environment": dict(start.environment),
        "cores": list(start.cores),
    }
