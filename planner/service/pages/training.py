"""Training: what it has learned, how fast, what its hosts used, its logs and its checkpoints."""

from __future__ import annotations

import platform
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from launch.system.log_part import LogPart
from planner.api import jobs, trainings
from planner.errors import UsageError
from planner.records.job_record import JobRecord
from planner.records.training_record import TrainingRecord, TrainingStatus
from planner.report.figures.training_figures import epoch_figures
from planner.report.figures.usage_figures import learning_figures, machine_use_figures
from planner.report.runs import run_facts
from planner.service.pages.actions import cancel_form, resume_form
from planner.service.pages.job import JobView, job_views
from planner.service.pages.view import Context, PageRequest, View
from planner.supervision.resuming import options_that_go_on

_LOG_BYTES, _MOST_LOGS = 3000, 12


def show(request: PageRequest, context: Context) -> View:
    """Show one training."""
    training_id, db = request.numbers["id"], context.db
    record = trainings.get(training_id, db=db)
    usage = trainings.get_usage(training_id, db=db)
    related = jobs.find(training_id=training_id, db=db)
    next_step = _next_command(record, related[0].request if related else {}, context)
    is_running = record.state is TrainingStatus.RUNNING
    running = job_views(job for job in related if is_running and not job.state.is_over)
    logs, why_no_log = _read_logs(training_id, context)
    return View(
        template="training.html",
        title=f"Training {record.id}: {record.use_case}",
        values={
            "one": record,
            "epochs": _count_epochs(record, running),
            "keeps_checkpoints": any(map(_keeps_checkpoints, related)),
            "running": running,
            "by_epoch": epoch_figures(record),
            "by_time": learning_figures(usage),
            "use": machine_use_figures(usage),
            "logs": logs,
            "why_no_log": why_no_log,
            "facts": run_facts(record),
            "forms": resume_form(record, next_step[1], context)
            + [form for job in running for form in cancel_form(job.record, context)],
            "next": next_step,
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


def _count_epochs(record: TrainingRecord, running: Iterable[JobView]) -> int:
    """Count the epochs that are done; a job tells of them before they are stored."""
    told = [job.training.epoch - 1 for job in running if job.training is not None]
    return max(record.last_epoch, *told, 0)


def _keeps_checkpoints(job: JobRecord) -> bool:
    """Whether a job was told to write checkpoints; one in a terminal has its command line alone."""
    return "checkpoint" in job.request or " --checkpoint" in job.title


def _next_command(
    record: TrainingRecord, request: Mapping[str, Any], context: Context
) -> tuple[str, str]:
    """Give what to do from here, and the command for that.

    ``request`` has the options of the job that ran it; it is empty where none did. Another machine
    has no file of this one, but may have a copy of it.
    """
    if record.checkpoint is None or record.state in (TrainingStatus.RUNNING, TrainingStatus.DONE):
        return "All numbers as text", f"ddlplan runs show {record.id}"
    words = ["ddlplan", "launch", "--use-case", record.use_case]
    if record.data is not None:
        words += ["--data", record.data]
    if len(record.hosts) > 1:
        words += ["--hosts", "FILE"]
    words += ["--epochs", str(record.epochs)]
    for option, value in options_that_go_on(request).items():
        words += [f"--{option.replace('_', '-')}", *([] if value is True else [str(value)])]
    folder = str(Path(record.checkpoint).parent)
    words += ["--checkpoint", folder, "--resume"]
    where = ""
    if record.machine != platform.node():
        where = f" on {record.machine}, which has it"
        if context.typed_on is not None:
            where += ", with a copy of this database as COPY"
            words += ["--db", "COPY"]
    return f"To go on from its checkpoint{where}", shlex.join(words)
