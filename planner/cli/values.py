"""Values of options, checked before anything that takes long."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from launch.system.durable_files import explain_absence
from planner.errors import UsageError
from planner.quantities import parse_duration_s
from planner.report.output import Output, start_output

if TYPE_CHECKING:
    from planner.jobs.hosts import Hosts


def duration_s(option: str, text: str) -> float:
    """Give a duration in seconds."""
    try:
        return parse_duration_s(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=f"'{option}'") from error


def stored_name(use_case: str, settings: Sequence[str] = ()) -> str:
    """Give a use case's name, with its settings, as the database has it.

    Raises:
        UsageError: It is the name of a script, and there are settings.
    """
    from launch.use_cases import resolve
    from planner.scripts.naming import is_script

    if is_script(use_case):
        if settings:
            raise UsageError(
                f"--set and --use-case {use_case!r}: a script has no settings: leave --set out"
            )
        return use_case
    return str(resolve(use_case, settings))


def listed_name(use_case: str | None) -> str | None:
    """Give the name, as the database has it, of the use case that a list is of; ``None``: all."""
    return None if use_case is None else stored_name(use_case)


def checked_name(use_case: str) -> str:
    """Give a use case's name as the database has it, once its file or module is seen to be there.

    Nothing is imported.
    """
    from launch.use_cases import make_workload
    from planner.scripts.naming import is_script

    if is_script(use_case):
        raise typer.BadParameter(
            f"--use-case {use_case!r}: no server runs a script: ddlplan tune -- ... does"
        )
    return make_workload(use_case).use_case


def find_case(
    use_case: str | None, data: Path | None, plan_id: int | None, db: str
) -> tuple[str | None, Path | None]:
    """Give the use case and the data that were named, else those of the plan that was.

    Raises:
        UsageError: The plan is of a script, its use case lies somewhere else now, or its data are
            not known.
    """
    if use_case is not None or plan_id is None:
        return use_case, data
    from planner.api.use_cases import find_case_of_plan

    return find_case_of_plan(plan_id, data=data, db=db)


def check_data(data: Path | None, hosts: Hosts | None, use_case: str | None = None) -> None:
    """Check that the data are there, unless other machines train, and named if they have to be."""
    from launch.use_cases import check_has_data

    if use_case is not None:
        check_has_data(use_case, data)
    is_here = hosts is None or hosts.is_local
    if data is not None and is_here and (why := explain_absence(data)) is not None:
        raise typer.BadParameter(f"--data {data}: {why}")


def one_of(option: str, value: str, choices: Sequence[str]) -> str:
    """Give a value that must be among the choices."""
    if value not in choices:
        raise typer.BadParameter(f"{option} {value!r}: choose one of {', '.join(choices)}")
    return value


def names_of(option: str, text: str, load: Callable[[str], object] = str) -> tuple[str, ...]:
    """Give the names of a list with commas, each once; ``load`` refuses those it does not know."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise typer.BadParameter(f"{option} {text!r}: name at least one")
    for name in names:
        load(name)
    return names


def counts_named(option: str, text: str, *, word: str | None = None) -> tuple[int, ...]:
    """Give the numbers of a list with commas, each once, ascending.

    ``word`` may stand in place of such a list, which the caller has seen to.
    """
    try:
        counts = {int(part) for part in text.split(",") if part.strip()}
    except ValueError:
        counts = set()
    if not counts or min(counts) < 1:
        other = "" if word is None else f"{word}, or "
        raise typer.BadParameter(
            f"{option} {text!r}: name {other}whole numbers from 1 on, as 1,2,4"
        )
    return tuple(sorted(counts))


def find_hosts(
    hosts: Path | None, ssh_config: Path | None, mpirun: str | None, *, allow_root: bool
) -> Hosts:
    """Give the hosts of a file, or of a Slurm allocation, else this machine.

    Raises:
        HostFileError: The file, the allocation or the ssh configuration cannot be used.
    """
    from launch.hosts.ssh import check_ssh_config
    from planner.jobs.hosts import HostAccess, Hosts

    if ssh_config is not None:
        check_ssh_config(ssh_config)
    access = HostAccess(ssh_config=ssh_config, mpirun=mpirun, allow_root=allow_root)
    return Hosts.find(hosts, access=access)


def start_table(command: str, *, json: bool, csv: bool) -> Output:
    """Say where a command writes that has CSV as well, and refuse two formats at once."""
    out = start_output(command, as_json=json, as_csv=csv)
    if json and csv:
        raise typer.BadParameter("--json and --csv exclude each other: give one")
    return out


def picture_file(file: Path | None, usual_name: str) -> Path | None:
    """Give the file of a picture, which has its usual name in a folder, or is an SVG file."""
    with suppress(OSError):  # of another user's folder, say: whoever writes there is told
        if file is not None and file.is_dir():
            return file / usual_name
    if file is not None and file.suffix.lower() != ".svg":
        raise typer.BadParameter(f"--plot {file}: pictures are SVG: name a file that ends in .svg")
    return file
