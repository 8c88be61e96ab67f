"""How does a document get onto another host? A program of ours receives it there.

``python -P -m launch.hosts.handover`` writes its stdin to a file that only the user can read, and
prints the name. mpirun's own way, the stdin of rank 0, loses the beginning of more than 4 kB
when the rank is on another host (Open MPI 5.0.11).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from launch.errors import HostUnreachableError
from launch.hosts.line import Host
from launch.hosts.ssh import LOGIN_LIMIT_S, ssh_command

_MARK = "ddlplan_received"
_LIMIT_S = 60.0
_FORWARDED = ("PYTHONPATH", "LD_LIBRARY_PATH")


def hand_over(host: Host, document: bytes, *, ssh_config: Path | None) -> str:
    """Put a document into a file on a host; whoever reads it there removes it.

    Args:
        host: Where.
        document: What.
        ssh_config: What `launch.hosts.ssh.write_ssh_config` wrote; ``None`` to go through Slurm.

    Returns:
        The name of the file there.

    Raises:
        HostUnreachableError: It did not get there.
    """
    program = [sys.executable, "-P", "-m", __name__]
    environment = [f"{name}={os.environ[name]}" for name in _FORWARDED if name in os.environ]
    if ssh_config is None:
        where = (f"--nodelist={host.name}", "--nodes=1", "--ntasks=1", "--overlap")
        command: Sequence[str] = ["srun", *where, "--export=ALL", *program]
    else:
        words = ["env", *environment, *program]
        command = ssh_command(host, words, config=ssh_config, timeout_s=LOGIN_LIMIT_S)
    try:
        ended = subprocess.run(
            command, input=document, capture_output=True, timeout=_LIMIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise HostUnreachableError(f"host {host.name}: {error}") from error
    for line in ended.stdout.decode(errors="replace").splitlines():
        if line.startswith(f'{{"{_MARK}"'):
            return str(json.loads(line)[_MARK])
    said = " ".join(ended.stderr.decode(errors="replace").split())[:300]
    raise HostUnreachableError(f"host {host.name} did not take what the job is told: {said}")


def receive() -> None:
    """Write stdin to a file and say which."""
    descriptor, name = tempfile.mkstemp(prefix="ddlplan-")  # for this user alone
    with os.fdopen(descriptor, "wb") as file:
        file.write(sys.stdin.buffer.read())
    print(json.dumps({_MARK: name}), flush=True)  # noqa: T201


if __name__ == "__main__":
    receive()
