"""What did the user mean by an option? Its value, checked before anything that takes long."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from planner.output import Output
from planner.quantities import parse_duration_s

if TYPE_CHECKING:
    from launch.hosts.file import HostList
    from planner.reach import Reach
    from planner.store import Store


def duration_s(option: str, text: str) -> float:
    """Give a duration in seconds."""
    try:
        return parse_duration_s(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=f"'{option}'") from error


def reading(db: str) -> Callable[[], Store]:
    """Give what opens a database that must be there already."""

    def open_() -> Store:
        from planner.store import Store

        return Store.open(db, create=False)

    return open_


def case_named(use_case: str | None) -> str | None:
    """Give a use case as the database names it."""
    from launch.use_cases import normalise_spec

    return None if use_case is None else normalise_spec(use_case)


def checked_case(use_case: str | None) -> str | None:
    """Give the same of one that must be there."""
    from launch.use_cases import check_spec

    if use_case is not None:
        check_spec(use_case)
    return case_named(use_case)


def data_path(data: Path | None, listed: HostList | None) -> str | None:
    """Give the absolute path of data, which must be there unless other machines have them."""
    if data is not None and listed is None and not data.exists():
        raise typer.BadParameter(f"--data {data}: no such file or folder")
    return None if data is None else str(data.absolute())


def one_of(option: str, value: str, choices: Sequence[str]) -> str:
    """Give a value that must be among the choices."""
    if value not in choices:
        raise typer.BadParameter(f"{option} {value!r}: choose one of {', '.join(choices)}")
    return value


def strategies_named(text: str | None) -> tuple[str, ...]:
    """Give the strategies of a list with commas; all where there is none."""
    from launch.strategies import load_strategy, strategy_names

    if text is None:
        return tuple(strategy_names())
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise typer.BadParameter(f"--strategies {text!r}: name at least one")
    for name in names:
        load_strategy(name)
    return names


def other_machines(hosts: Path | None, out: Output) -> HostList | None:
    """Give the hosts of a file, or of a Slurm allocation; ``None`` for this machine alone."""
    from planner.named_hosts import find_hosts, is_only_here

    listed = find_hosts(hosts, os.environ)
    if not is_only_here(listed.hosts):
        return listed
    for note in listed.notes:
        out.warn(note)
    return None


def reach(ssh_config: Path | None, mpirun: str | None, *, allow_root: bool) -> Reach:
    """Give how hosts are reached, with an mpirun that is there."""
    from planner.reach import Reach

    found = Reach(ssh_config=ssh_config, mpirun=mpirun, allow_root=allow_root)
    found.check_mpirun()
    return found


def check_one_format(*, json: bool, csv: bool) -> None:
    """Refuse two formats at once."""
    if json and csv:
        raise typer.BadParameter("--json and --csv exclude each other: give one")
