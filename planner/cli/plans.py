"""Command line of ``ddlplan plans``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from planner.cli.grouped_help import GroupedCommand, command_group
from planner.cli.options import (
    DEFAULT_DATABASE,
    AsCsv,
    AsJson,
    CaseSettings,
    Database,
    DataFolder,
    Html,
    MaybeCase,
    MaybeNode,
    MaybeTuned,
    PlanId,
    option,
)
from planner.cli.scripts import Command, ScriptCommand, check_options, needed_case
from planner.cli.values import listed_name, start_table, stored_name
from planner.report.output import start_output

plans_app = command_group("List, show, compare, export, import and delete stored plans.")


@plans_app.command("list", cls=GroupedCommand)
def plans_list(
    *,
    use_case: MaybeCase = None,
    node: MaybeNode = None,
    db: Database = DEFAULT_DATABASE,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """Show the stored plans."""
    from planner.commands.plans.lists import list_plans

    out = start_table("plans list", json=json, csv=csv)
    list_plans(db, out, listed_name(use_case), node)


@plans_app.command("show", cls=GroupedCommand)
def plans_show(
    plan_id: PlanId,
    *,
    html: Html = None,
    db: Database = DEFAULT_DATABASE,
    json: AsJson = False,
) -> None:
    """Show one plan with its evidence, and what it is worth."""
    from planner.commands.plans.plan import show_plan

    show_plan(db, start_output("plans show", as_json=json), plan_id, html)


@plans_app.command("best", cls=ScriptCommand)
def plans_best(
    context: typer.Context,
    command: Command = None,
    *,
    use_case: MaybeTuned = None,
    set: CaseSettings = None,  # noqa: A002 - the name of the option
    data: DataFolder = None,
    node: MaybeNode = None,
    db: Database = DEFAULT_DATABASE,
    json: AsJson = False,
) -> None:
    """Show the plan that launch would use."""
    from planner.commands.plans.plan import show_best
    from planner.scripts.naming import script_name

    out = start_output("plans best", as_json=json)
    if command:
        check_options(context, ("command", "node", "db", "json"), out)
        name = script_name(command)
    else:
        name = stored_name(needed_case(use_case, "plans best"), set or ())
    show_best(db, out, name, node, data)


@plans_app.command("compare", cls=GroupedCommand)
def plans_compare(
    first: PlanId,
    second: PlanId,
    *,
    db: Database = DEFAULT_DATABASE,
    json: AsJson = False,
) -> None:
    """Compare two plans, and say whether one of them is shown to be faster."""
    from planner.commands.plans.plan import compare

    compare(db, start_output("plans compare", as_json=json), first, second)


@plans_app.command("export", cls=GroupedCommand)
def plans_export(
    plan_id: PlanId,
    *,
    format_: Annotated[
        str,
        option(
            "--format",
            help_="json (for plans import), mpirun, torchrun, sbatch (or slurm), shell or python.",
            metavar="FORMAT",
        ),
    ] = "json",
    db: Database = DEFAULT_DATABASE,
    json: AsJson = False,
) -> None:
    """Write a plan as JSON, or as a command or script that runs without ddlplan."""
    from planner.commands.plans.plan import export

    export(db, start_output("plans export", as_json=json), plan_id, format_)


@plans_app.command("import", cls=GroupedCommand)
def plans_import(
    file: Annotated[Path, typer.Argument(help="File of plans export.")],
    *,
    db: Database = DEFAULT_DATABASE,
    json: AsJson = False,
) -> None:
    """Store a plan from a file."""
    from planner.commands.plans.lists import import_plan

    import_plan(db, start_output("plans import", as_json=json), file)


@plans_app.command("rm", cls=GroupedCommand)
def plans_rm(plan_id: PlanId, *, db: Database = DEFAULT_DATABASE, json: AsJson = False) -> None:
    """Delete a plan; its trials stay."""
    from planner.commands.plans.lists import remove

    remove(db, start_output("plans rm", as_json=json), plan_id)
