"""Command line of ``ddlplan jobs``, and the option by which commands become jobs."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from planner.cli.grouped_help import GroupedCommand, command_group, source_of
from planner.cli.options import DEFAULT_DATABASE, AsJson, Database, option
from planner.errors import UsageError
from planner.records.job_record import JobKind
from planner.report.output import Output, start_output

jobs_app = command_group("List, show, follow and cancel searches and trainings that run or ran.")

Detach = Annotated[
    bool,
    option("--detach", help_="Run as a job without this terminal; ddlplan jobs shows it."),
]
JobId = Annotated[int, typer.Argument(metavar="ID", help="Number of a job.")]


@jobs_app.command("list", cls=GroupedCommand)
def jobs_list(
    *,
    limit: Annotated[
        int, option("--limit", help_="Show at most this many.", metavar="N", min=1)
    ] = 30,
    db: Database = DEFAULT_DATABASE,
    json: AsJson = False,
) -> None:
    """Show the jobs, the newest first."""
    from planner.commands.jobs import list_jobs

    list_jobs(db, start_output("jobs list", as_json=json), limit)


@jobs_app.command("show", cls=GroupedCommand)
def jobs_show(job_id: JobId, *, db: Database = DEFAULT_DATABASE, json: AsJson = False) -> None:
    """Show one job: its state, what it does now, or how it ended."""
    from planner.commands.jobs import show_job

    show_job(db, start_output("jobs show", as_json=json), job_id)


@jobs_app.command("logs", cls=GroupedCommand)
def jobs_logs(
    job_id: JobId,
    *,
    follow: Annotated[
        bool, option("--follow", "-f", help_="Go on until the job ends; Ctrl-C ends only this.")
    ] = False,
    db: Database = DEFAULT_DATABASE,
    json: AsJson = False,
) -> None:
    """Show what a job has written; as JSON the last 256 KiB of it."""
    from planner.commands.jobs import follow_log, show_log

    out = start_output("jobs logs", as_json=json)
    if follow and json:
        raise typer.BadParameter("--follow and --json exclude each other: give one")
    (follow_log if follow else show_log)(db, out, job_id)


@jobs_app.command("cancel", cls=GroupedCommand)
def jobs_cancel(job_id: JobId, *, db: Database = DEFAULT_DATABASE, json: AsJson = False) -> None:
    """End a job; a training ends its step and writes a checkpoint first."""
    from planner.commands.jobs import cancel_job

    cancel_job(db, start_output("jobs cancel", as_json=json), job_id)


def submit_command(context: typer.Context, kind: JobKind, db: str, out: Output) -> None:
    """Submit the command that was typed as a job, with the options that it was given.

    Raises:
        UsageError: One of them is none that a job can have.
    """
    from planner.commands.jobs import submit_job
    from planner.supervision.options import NOT_FOR_JOBS, OPTIONS

    given = given_options(context)
    for name in NOT_FOR_JOBS:
        if given.get(name) and name not in ("detach", "json"):
            option_name = "--" + name.replace("_", "-")
            raise UsageError(f"--detach and {option_name} exclude each other: give one")
    request = {name: _plain(value) for name, value in given.items() if name in OPTIONS[kind]}
    submit_job(kind, request, db, out)


def given_options(context: typer.Context) -> dict[str, Any]:
    """Give the options that were given, on the command line or by a variable."""
    given = context.params.items()
    return {name: value for name, value in given if source_of(context, name) != "DEFAULT"}


def _plain(value: Any) -> Any:
    if isinstance(value, bool | int | float):
        return value
    return [str(one) for one in value] if isinstance(value, list | tuple) else str(value)
