"""Command line of ``ddlplan weights``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from planner.cli.grouped_help import GroupedCommand, command_group
from planner.cli.options import DEFAULT_DATABASE, AsJson, Database, named, option
from planner.report.output import start_output

weights_app = command_group("Export trained weights.")


@weights_app.command("export", cls=GroupedCommand)
def weights_export(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN", help="Folder of a run, such as runs/3, or its number there: 3."
        ),
    ],
    *,
    onnx: Annotated[
        Path,
        option("--onnx", help_="ONNX file to write, or to replace.", parser=named, metavar="FILE"),
    ],
    data: Annotated[
        Path | None,
        option(
            "--data",
            help_="Folder or file of the data, if it has moved.",
            parser=named,
            metavar="PATH",
        ),
    ] = None,
    best: Annotated[
        bool, option("--best", help_="Export the weights that launch --keep-best has kept.")
    ] = False,
    db: Database = DEFAULT_DATABASE,
    json: AsJson = False,
) -> None:
    """Write the trained model of a run as an ONNX file, compared with PyTorch."""
    from planner.commands.runs import export_onnx

    out = start_output("weights export", as_json=json)
    export_onnx(out, run, onnx, data=data, best=best)
