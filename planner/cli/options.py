"""Which options do several commands have? Their names, types, words of help and variables."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from planner.output import variable_of


def option(*names: str, help_: str, **settings: Any) -> Any:
    """Make an option that is also read from ``DDLPLAN_<OPTION>``."""
    return typer.Option(
        *names, envvar=variable_of(names[0]), show_envvar=False, help=help_, **settings
    )


def named(path: str) -> Path:
    """Take a path that is not empty, as one in a variable that was never set would be.

    Raises:
        BadParameter: It is.
    """
    if not path:
        raise typer.BadParameter("it is empty: name a folder")
    return Path(path)


Database = Annotated[str, option("--db", help_="Database: a path or sqlite:///path.")]
AsJson = Annotated[bool, option("--json", help_="One JSON document on stdout.")]
AsCsv = Annotated[bool, option("--csv", help_="CSV on stdout.")]
NeededCase = Annotated[
    str, option("--use-case", help_="Built-in name, package.module:object or file.py:object.")
]
MaybeCase = Annotated[str | None, option("--use-case", help_="Only of this use case.")]
MaybeNode = Annotated[str | None, option("--node", help_="Only of this node.")]
DataFolder = Annotated[
    Path | None, option("--data", help_="Folder of the data; built-in use cases draw their own.")
]
HostFile = Annotated[Path | None, option("--hosts", help_="File of hosts, one a line.")]
SshConfig = Annotated[
    Path | None, option("--ssh-config", help_="Read by ssh in place of ~/.ssh/config.")
]
Mpirun = Annotated[str | None, option("--mpirun", help_="A site's own mpirun, by path or name.")]
AllowRoot = Annotated[
    bool, option("--allow-run-as-root", help_="Let root start mpirun, as in a container.")
]
Seed = Annotated[
    int,
    # The sampler of the search takes no more bits.
    option("--seed", help_="Of weights, order of samples, search.", min=0, max=2**32 - 1),
]
PlanId = Annotated[int, typer.Argument(metavar="ID", help="Number of a plan.")]
DEFAULT_DATABASE = "planner.db"
