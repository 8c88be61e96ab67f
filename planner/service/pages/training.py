"""Training: what it has learned, how fast, what its hosts used, its logs and its checkpoints."""

from __future__ import annotations

import shlex

from launch.system.log_part import LogPart
from planner.api import jobs, trainings
from planner.errors import UsageError
from planner.records.job_record import JobState
from planner.records.training_record import TrainingRecord, TrainingStatus
from planner.report.figures.training_figures import loss_figure, rate_figure
from planner.report.figures.usage_figures import learning_figures, machine_use_figures
from planner.report.runs import run_facts
from planner.service.pages.actions import cancel_form, resume_form
from planner.service.pages.job import JobView, job_views
from planner.service.pages.view import Context, PageRequest, View

_LOG_BYTES, _MOST_LOGS = 3000, 12


def show(request: PageRequest, context: Context) -> View:
    """Show one training."""
    training_id, db = request.numbers["id"], context.db
    record = trainings.get(training_id, db=db)
    usage = trainings.get_usage(training_id, db=db)
    running = _find_running(record, context)
    logs, why_no_log = _read_logs(training_id, context)
    by_epoch = [f for f in (loss_figure(record), rate_figure(record)) if f is not None]
    return View(
        template="training.html",
        title=f"Training {record.id}: {record.use_case}",
        values={
            "one": record,
            "running": running,
            "by_epoch": by_epoch,
            "by_time": learning_figures(usage),
            "use": machine_use_figures(usage),
            "logs": logs,
            "why_no_log": why_no_log,
            "facts": run_facts(record),
            "forms": resume_form(record, context)
            + [form for job in running for form in cancel_form(job.record, context)],
            "command": _next_command(record),
        },
        topics=[f"training:{training_id}", "job"],
    )


def _read_logs(training_id: int, context: Context) -> tuple[list[tuple[str, LogPart]], str]:
    """Give the ends of its logs by their names, or why there are none."""
    try:
        found = trainings.list_logs(training_id, db=context.db)
        listed = [log for log in found if log.size][:_MOST_LOGS]
        parts = [
            trainings.read_log(
                training_id, log.name, offset=-_LOG_BYTES, most_bytes=_LOG_BYTES, db=context.db
            )
            for log in listed
        ]
    except UsageError as error:
        return [], str(error)
    return [(log.name, part) for log, part in zip(listed, parts, strict=True)], "there are none"


def _find_running(record: TrainingRecord, context: Context) -> list[JobView]:
    """Give the jobs that train this now."""
    if record.state is not TrainingStatus.RUNNING:
        return []
    active = jobs.find(states=[JobState.RUNNING], db=context.db)
    found = [one for one in active if one.training_id == record.id and not one.state.is_over]
    return job_views(found)


def _next_command(record: TrainingRecord) -> str:
    """Give the command that goes on from here."""
    use_case = shlex.quote(record.use_case)
    if record.state in (TrainingStatus.RUNNING, TrainingStatus.DONE):
        return f"ddlplan runs show {record.id}"
    return (
        f"ddlplan launch --use-case {use_case} --epochs {record.epochs} --checkpoint DIR --resume"
    )
