"""Command line of ``ddlplan runs``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from planner.cli.grouped_help import GroupedCommand, command_group
from planner.cli.options import DEFAULT_DATABASE, AsCsv, AsJson, Database, MaybeCase, option
from planner.cli.values import listed_name, one_of, picture_file, start_table
from planner.report.output import start_output

runs_app = command_group("List, show and compare trainings that were launched.")

TrainingId = Annotated[int, typer.Argument(metavar="ID", help="Number of a training.")]
PlotFile = Annotated[
    Path | None,
    option("--plot", help_="Draw an SVG file too: run-ID.svg, or FILE.", metavar="[FILE]"),
]
PlotOfTwo = Annotated[
    Path | None,
    option(
        "--plot",
        help_="Draw an SVG file of both too: run-ID-run-ID.svg, or FILE.",
        metavar="[FILE]",
    ),
]


class _PlottingCommand(GroupedCommand):
    """A command whose ``--plot`` may stand without a file, which typer's options cannot."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Name this folder where no file follows; a number is that of a training."""
        following = [*args, "--"][1:]
        words = [
            "--plot=."
            if word == "--plot" and (after.startswith("-") or after.isdecimal())
            else word
            for word, after in zip(args, following, strict=True)
        ]
        parsed: list[str] = super().parse_args(ctx, words)
        return parsed


@runs_app.command("list", cls=GroupedCommand)
def runs_list(
    *,
    use_case: MaybeCase = None,
    state: Annotated[
        str | None,
        option(
            "--state",
            help_="Show only those that are running, done, failed, cancelled or interrupted.",
            metavar="STATE",
        ),
    ] = None,
    db: Database = DEFAULT_DATABASE,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """Show the trainings, the newest first."""
    from planner.commands.runs import list_runs
    from planner.records.training_record import TrainingStatus

    out = start_table("runs list", json=json, csv=csv)
    states = tuple(str(each) for each in TrainingStatus)
    wanted = None if state is None else TrainingStatus(one_of("--state", state, states))
    list_runs(db, out, listed_name(use_case), wanted)


@runs_app.command("show", cls=_PlottingCommand)
def runs_show(
    training_id: TrainingId,
    *,
    plot: PlotFile = None,
    db: Database = DEFAULT_DATABASE,
    json: AsJson = False,
) -> None:
    """Show one training: its hosts, its epochs, and what it used."""
    from planner.commands.runs import show_run

    out = start_output("runs show", as_json=json)
    show_run(db, out, training_id, picture_file(plot, f"run-{training_id}.svg"))


@runs_app.command("compare", cls=_PlottingCommand)
def runs_compare(
    first: TrainingId,
    second: TrainingId,
    *,
    plot: PlotOfTwo = None,
    db: Database = DEFAULT_DATABASE,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """Compare two trainings: settings, losses, speed, and what they used."""
    from planner.commands.runs import compare_runs

    out = start_table("runs compare", json=json, csv=csv)
    file = picture_file(plot, f"run-{first}-run-{second}.svg")
    compare_runs(db, out, first, second, file)
