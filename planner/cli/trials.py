"""Command line of ``ddlplan trials``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from planner.cli.grouped_help import GroupedCommand, GroupedGroup, names_subcommand
from planner.cli.options import (
    DEFAULT_DATABASE,
    AsCsv,
    AsJson,
    CaseName,
    Database,
    MaybeCase,
    MaybeNode,
)
from planner.cli.values import listed_name, start_table, stored_name
from planner.report.output import start_output

trials_app = typer.Typer(cls=GroupedGroup, invoke_without_command=True, rich_markup_mode=None)


@trials_app.callback()
def trials(
    context: typer.Context,
    *,
    use_case: MaybeCase = None,
    node: MaybeNode = None,
    db: Database = DEFAULT_DATABASE,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """Show every trial, failed ones with their reason."""
    if names_subcommand(context):
        return
    from planner.commands.plans.lists import show_trials

    out = start_table("trials", json=json, csv=csv)
    show_trials(db, out, listed_name(use_case), node)


@trials_app.command("export", cls=GroupedCommand)
def trials_export(
    file: Annotated[
        Path, typer.Argument(help="File to write, or to write again, for tune --replay.")
    ],
    *,
    use_case: CaseName,
    node: MaybeNode = None,
    db: Database = DEFAULT_DATABASE,
    json: AsJson = False,
) -> None:
    """Write the trials of the latest study of a use case to a file, with every sample."""
    from planner.commands.grids import export_grid

    export_grid(db, start_output("trials export", as_json=json), stored_name(use_case), node, file)
