"""Command line of ``ddlplan db``."""

from __future__ import annotations

from typing import Annotated

import typer

from planner.cli.grouped_help import GroupedCommand, command_group
from planner.cli.options import DEFAULT_DATABASE, AsJson, Database
from planner.report.output import start_output

db_app = command_group("Show what a database holds, check it, and copy it to another one.")


@db_app.command("info", cls=GroupedCommand)
def db_info(*, db: Database = DEFAULT_DATABASE, json: AsJson = False) -> None:
    """Show what a database is, and how much it holds of what."""
    from planner.commands.db import show_info

    show_info(db, start_output("db info", as_json=json))


@db_app.command("check", cls=GroupedCommand)
def db_check(*, db: Database = DEFAULT_DATABASE, json: AsJson = False) -> None:
    """Read everything in a database: a line for each fault, and exit code 6 if there is one."""
    from planner.commands.db import check

    check(db, start_output("db check", as_json=json))


@db_app.command("copy", cls=GroupedCommand)
def db_copy(
    source: Annotated[str, typer.Argument(metavar="FROM", help="Database to copy.")],
    target: Annotated[str, typer.Argument(metavar="TO", help="Database that is empty or new.")],
    *,
    json: AsJson = False,
) -> None:
    """Copy everything to an empty database, SQLite or PostgreSQL, and compare both."""
    from planner.commands.db import copy

    copy(source, target, start_output("db copy", as_json=json))
