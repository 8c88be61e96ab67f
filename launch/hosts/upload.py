"""Upload of a document to another host, where a program of ours receives it.

``python -P -m launch.hosts.upload`` writes its stdin to a file that only the user can read, and
prints the name. mpirun's own way, the stdin of rank 0, loses the beginning of more than 4 kB
when the rank is on another host (Open MPI 5.0.11).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from launch.errors import HostUnreachableError
from launch.hosts.host_line import Host
from launch.hosts.ssh import remote_command
from launch.workers.log import find_cause
from probes.child_process import find_document, module_command

_DOCUMENT_KEY = "ddlplan_received"
_LIMIT_S = 60.0

_PREFIX = "ddlplan-upload-"
_MOST_AGE_S = 3600.0
"""Age of a document whose reader will not come any more: mpirun has ended before its first rank had
begun. A rank begins within minutes."""


def upload(host: Host, document: bytes, *, ssh_config: Path | None) -> str:
    """Write a document into a file on a host; its reader removes the file.

    Args:
        host: Where.
        document: Its bytes.
        ssh_config: What `launch.hosts.ssh.write_ssh_config` wrote; ``None`` to go through Slurm.

    Returns:
        The name of the file on the host.

    Raises:
        HostUnreachableError: The host did not store it.
    """
    command = remote_command(host, module_command(__name__), ssh_config=ssh_config)
    try:
        ended = subprocess.run(
            command, input=document, capture_output=True, timeout=_LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired as error:  # whose own text is the whole command
        raise HostUnreachableError(
            f"host {host.name} did not take what the job is told within {_LIMIT_S:g} s: see "
            "whether it still answers, with ddlplan doctor --hosts FILE, then try again"
        ) from error
    except OSError as error:
        raise HostUnreachableError(f"host {host.name}: {error}") from error
    if received := find_document(ended.stdout.decode(errors="replace"), _DOCUMENT_KEY):
        return str(received[_DOCUMENT_KEY])
    why = find_cause(ended.stderr.decode(errors="replace"))
    raise HostUnreachableError(f"host {host.name} did not take what the job is told: {why}")


def receive() -> None:
    """Write stdin to a file and print its name; nothing is left where that fails."""
    _remove_unread(Path(tempfile.gettempdir()))
    descriptor, name = tempfile.mkstemp(prefix=_PREFIX)  # for this user alone
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(sys.stdin.buffer.read())
    except BaseException:
        Path(name).unlink()
        raise
    print(json.dumps({_DOCUMENT_KEY: name}), flush=True)  # noqa: T201


def _remove_unread(place: Path) -> None:
    """Remove documents of this user that nobody has read."""
    for file in place.glob(f"{_PREFIX}*"):
        with suppress(OSError):  # another upload may remove it too
            found = file.lstat()
            is_old = time.time() - found.st_mtime > _MOST_AGE_S
            if is_old and found.st_uid == os.geteuid():
                file.unlink()


if __name__ == "__main__":
    receive()
