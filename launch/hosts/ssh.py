"""Programs on other hosts by ssh, with the settings of the host file and of the user.

mpirun logs in by itself, and has no place for users and ports: both go into a configuration file
that is made for the job, and every login reads that one.
"""

from __future__ import annotations

import glob
import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from launch.errors import HostFileError
from launch.hosts.host_line import Host
from launch.system.durable_files import explain_absence, write_private

_SYSTEM_CONFIG = Path("/etc/ssh/ssh_config")

LOGIN_LIMIT_S = 10
"""Time limit of a login."""

_FORWARDED = ("PYTHONPATH", "LD_LIBRARY_PATH", "DDLPLAN_CACHE")
"""Variables that programs of ours need on every host, as ranks do."""

_ALWAYS = {
    "BatchMode": "yes",  # nobody can type a password
    "ControlMaster": "no",  # a shared connection would outlive the job that opened it
    "RemoteCommand": "none",  # the user's would be refused beside ours
    "RequestTTY": "no",
    "ClearAllForwardings": "yes",  # a second login cannot listen on the port of the first
    # A login to a host that is cut off would wait there for hours. But mpirun must notice first, in
    # 9 s: where ssh does, it ends with 255 and no word about the host.
    "ServerAliveInterval": "10",
    "ServerAliveCountMax": "2",
    "LogLevel": "ERROR",  # banners and notes would hide what went wrong
}
"""Settings that outrank the user's configuration. Checking host keys is the user's matter."""

_DEFAULTS = {
    # mpirun's login to a host that has died since it was checked would wait for TCP, which takes
    # minutes. Who has set another limit had a reason, such as a far host that is slow.
    "ConnectTimeout": str(LOGIN_LIMIT_S),
}
"""Settings that neither the user's configuration nor the machine's may have."""


def ssh_name(host: Host) -> str:
    """Give the name by which ssh and mpirun know a host: mpirun takes a colon for a separator."""
    return "ipv6-" + host.name.replace(":", "-") if ":" in host.name else host.name


def check_ssh_config(file: Path) -> None:
    """Check that `write_ssh_config` can include a configuration of the user's own.

    Raises:
        HostFileError: It is no file, or its name has no place in a configuration.
    """
    whole = str(file.absolute())
    if not whole.isprintable() or '"' in whole or "\\" in whole:
        raise HostFileError(f'ssh configuration {whole!r}: expected a name without " and \\')
    if (why := explain_absence(file)) is not None or not file.is_file():
        raise HostFileError(f"ssh configuration {file}: {why or 'it is no file'}")


def write_ssh_config(hosts: Iterable[Host], path: Path, *, include: Path | None = None) -> None:
    """Write the ssh configuration of a job, which only the user can read.

    ssh keeps the first value that it finds: ours, then the user's, then the machine's, which
    ``ssh -F`` would leave out, then our defaults.

    Args:
        hosts: Who can be logged in to.
        path: Where it is written, whatever is there.
        include: The user's own configuration in place of ``~/.ssh/config``.

    Raises:
        HostFileError: ``include`` cannot be included.
    """
    lines = ["Host *", *_settings(_ALWAYS)]
    listed = list(hosts)
    for host in listed:
        lines += _host_lines(host)
    # What is included after a Host line would hold for that host only.
    lines += ["Match all", f"  Include {_quoted(include) if include else '~/.ssh/config'}"]
    if _SYSTEM_CONFIG.is_file():
        lines.append(f"  Include {_SYSTEM_CONFIG}")
    if any(":" in host.name for host in listed):
        lines.append("Match final all")  # a second look, in which settings for an address match it
    lines += _settings(_DEFAULTS)
    write_private(path, "".join(f"{line}\n" for line in lines).encode())


def remote_command(host: Host, program: Sequence[str], *, ssh_config: Path | None) -> list[str]:
    """Give the command that runs a program of ours on a host, with our environment variables.

    The words reach the program as they are, though a shell of the other side reads them. What
    ends the login does not always end the program: the program has to see to that itself.

    Args:
        host: Where.
        program: The program and its arguments.
        ssh_config: What `write_ssh_config` wrote; ``None`` to start it by Slurm.
    """
    if ssh_config is None:
        where = (f"--nodelist={host.name}", "--nodes=1", "--ntasks=1", "--overlap")
        return ["srun", *where, "--export=ALL", *program]
    environment = [f"{name}={os.environ[name]}" for name in _FORWARDED if name in os.environ]
    return [
        *("ssh", "-F", str(ssh_config)),
        *("-o", "BatchMode=yes", "-o", f"ConnectTimeout={LOGIN_LIMIT_S}"),
        *("--", ssh_name(host), shlex.join(["/usr/bin/env", *environment, *program])),
    ]


def _settings(settings: Mapping[str, str]) -> list[str]:
    return [f"  {name} {value}" for name, value in settings.items()]


def _host_lines(host: Host) -> list[str]:
    name = ssh_name(host)
    lines = [f"Host {name}"]
    if name != host.name:
        lines.append(f"  HostName {host.name}")
    if host.user is not None:
        lines.append(f"  User {host.user}")
    if host.port is not None:
        lines.append(f"  Port {host.port}")
    return lines


def _quoted(file: Path) -> str:
    """Write a file's name so that ssh takes no part of it for a pattern or a second file."""
    check_ssh_config(file)
    return f'"{glob.escape(str(file.absolute()))}"'
