"""Command line of ``ddlplan report``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from planner.cli.options import (
    DEFAULT_DATABASE,
    AllowRoot,
    AsJson,
    Database,
    Mpirun,
    NoWait,
    named,
    option,
)
from planner.cli.values import check_data, duration_s, names_of, one_of
from planner.errors import UsageError
from planner.report.output import start_output

_BUDGET = "30m"


def report(
    *,
    measure: Annotated[
        bool, option("--measure", help_="Measure on this machine what is missing.")
    ] = False,
    budget: Annotated[
        str | None,
        option("--budget", help_="Time for --measure: 90s, 30m (default), 1h.", metavar="DURATION"),
    ] = None,
    papers: Annotated[
        str | None,
        option("--papers", help_="Papers: lerat_2022,...; by default all.", metavar="NAMES"),
    ] = None,
    data: Annotated[
        list[str] | None,
        option(
            "--data",
            help_="Data to measure with, such as mnist_cnn=DIR; may be repeated.",
            metavar="NAME=PATH",
        ),
    ] = None,
    out_folder: Annotated[
        Path | None,
        option("--out", help_="Folder to write files into.", parser=named, metavar="DIR"),
    ] = None,
    format_: Annotated[
        str | None,
        option(
            "--format",
            help_="Formats of the files: md (with SVG), csv, html; by default all.",
            metavar="NAMES",
        ),
    ] = None,
    no_wait: NoWait = False,
    mpirun: Mpirun = None,
    allow_run_as_root: AllowRoot = False,
    db: Database = DEFAULT_DATABASE,
    json: AsJson = False,
) -> None:
    """Show papers' tables with your figures beside the published ones."""
    from planner.jobs.hosts import HostAccess, Hosts
    from planner.paper_tables import load_paper

    out = start_output("report", as_json=json)
    if format_ is not None and out_folder is None:
        raise UsageError(f"--format {format_} and no --out: name a folder for the files")
    formats = _formats(format_)
    names = None if papers is None else names_of("--papers", papers, load_paper)
    budget_s = duration_s("--budget", _BUDGET if budget is None else budget)
    folders: dict[str, Path] = {}
    for name, folder in map(_folder, data or ()):
        if folders.setdefault(name, folder) is not folder:
            raise UsageError(f"--data {name}=...: given twice: name one folder")
    _check_names(folders, names)
    access = HostAccess(mpirun=mpirun, allow_root=allow_run_as_root)
    if measure:
        access.require_mpirun()
        access.check_root()
    else:
        access.check_mpirun()
    hosts = Hosts.this_machine(access)  # inside a Slurm allocation too
    for folder in folders.values():
        check_data(folder, hosts)
    for name, value in (("--data", data), ("--budget", budget)):
        if value and not measure:
            raise UsageError(f"{name} and no --measure: it is for what is measured, add --measure")
    from planner.api.reports import MeasureRequest
    from planner.commands.report import make_report

    make_report(
        MeasureRequest(
            papers=names, budget_s=budget_s, data=folders, hosts=hosts, waits=not no_wait
        ),
        db,
        out,
        measures=measure,
        place=out_folder,
        formats=formats,
    )


def _check_names(folders: Iterable[str], papers: Sequence[str] | None) -> None:
    from launch.use_cases._settings import split_name
    from planner.paper_tables import load_paper, paper_names

    known = {
        split_name(case)[0]
        for paper in papers or paper_names()
        for case in load_paper(paper).use_cases
    }
    for name in folders:
        if name not in known:
            raise UsageError(
                f"--data {name}=...: no paper that is measured has this use case: choose one of "
                f"{', '.join(sorted(known))}"
            )


def _formats(text: str | None) -> tuple[str, ...]:
    from planner.report.papers.files import FORMATS

    if text is None:
        return FORMATS
    return tuple(one_of("--format", name, FORMATS) for name in names_of("--format", text))


def _folder(text: str) -> tuple[str, Path]:
    name, sign, folder = text.partition("=")
    if not (name and sign and folder):
        raise typer.BadParameter(f"--data {text!r}: write NAME=PATH, such as mnist_cnn=data/mnist")
    return name, Path(folder)
