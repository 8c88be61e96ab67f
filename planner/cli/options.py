"""Options that several commands have: names, types, help and environment variables."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from planner.cli.grouped_help import DEFAULT_GROUP
from planner.report.output import environment_variable


def option(*names: str, help_: str, group: str = DEFAULT_GROUP, **settings: Any) -> Any:
    """Make an option that is also read from ``DDLPLAN_<OPTION>``, shown in a group of the help."""
    return typer.Option(
        *names,
        envvar=environment_variable(names[0]),
        show_envvar=False,
        help=help_,
        rich_help_panel=group,
        **settings,
    )


def named(path: str) -> Path:
    """Take a path that is not empty, as one in a variable that was never set would be.

    Raises:
        BadParameter: It is.
    """
    if not path:
        raise typer.BadParameter("it is empty: name a file or a folder")
    return Path(path)


def host_named(name: str) -> str:
    """Take the name of a host that is not empty: no plan is of such a host, and none was found.

    Raises:
        BadParameter: It is.
    """
    if not name:
        raise typer.BadParameter("it is empty: name a host")
    return name


what_option = partial(option, group="What to train")
search_option = partial(option, group="Search")
plan_option = partial(option, group="Plan")
faults_option = partial(option, group="Checkpoints and faults")
hosts_option = partial(option, group="Hosts")
serve_option = partial(option, group="Server")

_CASE_HELP = "Use case: a built-in name, package.module:object or file.py:object."

Database = Annotated[
    str,
    option("--db", help_="Database: a path, or postgresql+psycopg://user@host/name.", metavar="DB"),
]
AsJson = Annotated[bool, option("--json", help_="Write one JSON document to stdout.")]
AsCsv = Annotated[bool, option("--csv", help_="Write CSV to stdout.")]
Html = Annotated[
    Path | None,
    option(
        "--html",
        help_="Write a page with plots too, without outside links.",
        parser=named,
        metavar="FILE",
    ),
]
CaseName = Annotated[str, what_option("--use-case", help_=_CASE_HELP, metavar="NAME")]
MaybeTuned = Annotated[str | None, what_option("--use-case", help_=_CASE_HELP, metavar="NAME")]
"""Needed too, where no script and no recorded search stands in its place."""
MaybeCase = Annotated[
    str | None, option("--use-case", help_="Show only this use case's.", metavar="NAME")
]
MaybeNode = Annotated[
    str | None,
    option("--node", help_="Show only this host's.", parser=host_named, metavar="NAME"),
]
CaseSettings = Annotated[
    list[str] | None,
    what_option(
        "--set",
        help_="Setting of the use case, such as lr=0.1; may be repeated.",
        metavar="KEY=VALUE",
    ),
]
DataFolder = Annotated[
    Path | None,
    what_option(
        "--data",
        help_="Folder or file of the data; most built-in use cases can make up their own.",
        parser=named,
        metavar="PATH",
    ),
]
HostFile = Annotated[
    Path | None,
    hosts_option("--hosts", help_="File with one host a line.", parser=named, metavar="FILE"),
]
SshConfig = Annotated[
    Path | None,
    hosts_option(
        "--ssh-config",
        help_="File for ssh in place of ~/.ssh/config.",
        parser=named,
        metavar="FILE",
    ),
]
Mpirun = Annotated[
    str | None,
    hosts_option(
        "--mpirun", help_="Another mpirun than ddlplan's, by path or name.", metavar="PROGRAM"
    ),
]
AllowRoot = Annotated[
    bool, hosts_option("--allow-run-as-root", help_="Let root start mpirun, as in a container.")
]
Seed = Annotated[
    int,
    what_option(
        "--seed",
        help_="Seed of weights, sample order and search.",
        metavar="N",
        min=0,
        max=2**32 - 1,  # the sampler of the search takes no more bits
    ),
]
MaybePlan = Annotated[
    int | None, plan_option("--plan", help_="Number of a stored plan.", metavar="ID")
]
AllowStale = Annotated[
    bool, plan_option("--allow-stale", help_="Use a plan of other hardware or software.")
]
NoWait = Annotated[
    bool, option("--no-wait", help_="End (exit code 7) where something else is timed or trains.")
]
PlanId = Annotated[int, typer.Argument(metavar="ID", help="Number of a plan.")]
DEFAULT_DATABASE = "planner.db"
MOST_EPOCHS = 10**9
"""A database holds numbers up to ``2 ** 63 - 1``."""
