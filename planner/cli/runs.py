"""Command line of ``ddlplan runs``."""

from __future__ import annotations

from typing import Annotated

import typer

from planner.cli.grouped_help import GroupedCommand
from planner.cli.options import DEFAULT_DATABASE, AsJson, Database, MaybeCase, option
from planner.cli.values import one_of, stored_name
from planner.report.output import start_output

runs_app = typer.Typer(
    help="List and show trainings that were launched.",
    invoke_without_command=True,
    rich_markup_mode=None,
)


@runs_app.command("list", cls=GroupedCommand)
def runs_list(
    *,
    use_case: MaybeCase = None,
    state: Annotated[
        str | None,
        option(
            "--state",
            help_="Only those that are running, done, failed, cancelled or interrupted.",
            metavar="STATE",
        ),
    ] = None,
    db: Database = DEFAULT_DATABASE,
    json: AsJson = False,
) -> None:
    """Show the trainings, the newest first."""
    from planner.commands.runs import list_runs
    from planner.records.training_record import TrainingStatus

    out = start_output("runs list", as_json=json)
    states = tuple(str(each) for each in TrainingStatus)
    wanted = None if state is None else TrainingStatus(one_of("--state", state, states))
    list_runs(db, out, use_case and stored_name(use_case), wanted)


@runs_app.command("show", cls=GroupedCommand)
def runs_show(
    training_id: Annotated[int, typer.Argument(metavar="ID", help="Number of a training.")],
    *,
    db: Database = DEFAULT_DATABASE,
    json: AsJson = False,
) -> None:
    """Show one training: its hosts, its epochs, and what it used."""
    from planner.commands.runs import show_run

    show_run(db, start_output("runs show", as_json=json), training_id)
