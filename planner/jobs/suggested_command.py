"""Command line that the user may type next."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from launch.mpi.mpirun import needs_root_option
from launch.workload import Workload
from planner.jobs.hosts import Hosts
from planner.scripts.naming import command_for, command_line, is_script


def suggest_command(
    command: str,
    workload: Workload | None = None,
    *,
    db: str,
    plan_id: int | None = None,
    hosts: Hosts,
    options: Sequence[str] = (),
) -> str:
    """Give a ddlplan command line, with the options that it shares with the present one.

    It is for the present folder, whose path is left out of the files that lie in it, and for the
    present user: where mpirun starts the training, root needs an option.

    Args:
        command: ``tune``, ``launch`` or ``probe``.
        workload: What is trained; ``None`` where the command trains nothing.
        db: Database; it is left out where the next command finds it by itself.
        plan_id: Plan to launch, where that is not the one which ``launch`` finds by itself.
        hosts: Where, and how they are reached.
        options: Of this command alone.
    """
    words = list(options)
    if workload is not None and workload.data is not None:
        words += ["--data", _from_here(workload.data)]
    access = hosts.access
    if hosts.file is not None:
        words += ["--hosts", str(hosts.file)]
    if plan_id is not None:
        words += ["--plan", str(plan_id)]
    if access.ssh_config is not None:
        words += ["--ssh-config", str(access.ssh_config)]
    if access.mpirun is not None:
        words += ["--mpirun", access.mpirun]
    is_script_here = workload is not None and is_script(workload.use_case) and hosts.is_local
    starts_mpi = command == "launch" and not is_script_here
    if access.allow_root or (starts_mpi and needs_root_option(os.environ)):
        words.append("--allow-run-as-root")
    words += database_options(db)
    if workload is None:
        return command_line(["ddlplan", command, *words])
    return command_for(_from_here(workload.use_case), command, *words)


def database_options(db: str) -> list[str]:
    """Give the option that names a database; none where commands typed here find it."""
    return [] if db == os.environ.get("DDLPLAN_DB", "planner.db") else ["--db", db]


def name_database(command: str, db: str) -> str:
    """Give a command line of ddlplan with the option that names a database.

    It is for whoever reads it, whose shell may have another DDLPLAN_DB, or none. The option stands
    before the ``--`` of a script. What is no command of ddlplan, or names one, stays as it is.
    """
    if not command.startswith("ddlplan "):
        return command
    words = shlex.split(command)
    end = words.index("--") if "--" in words else len(words)
    if "--db" in words[:end]:
        return command
    return command_line([*words[:end], "--db", db, *words[end:]])


def _from_here(place: str) -> str:
    return place.removeprefix(f"{Path.cwd()}{os.sep}")
