"""Of which Open MPI is an mpirun? The daemons of 4 have other settings than those of 5."""

from __future__ import annotations

import re
import subprocess

from launch.errors import LaunchError

_VERSION = re.compile(r"\((?:Open MPI|OpenRTE)\) (\d+)\.")
"""Open MPI 4 has another name for itself where it is called by another name than ``mpirun``."""

_OLDEST = 4
_ANSWER_LIMIT_S = 10.0


def read_generation(mpirun: str) -> int:
    """Ask an mpirun for the first number of its version.

    Raises:
        LaunchError: It does not answer, or is none of Open MPI 4 or later.
    """
    try:
        ended = subprocess.run(
            [mpirun, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_ANSWER_LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LaunchError(f"mpirun={mpirun}: it does not tell its version: {error}") from error
    found = _VERSION.search(ended.stdout)
    if found is None or int(found[1]) < _OLDEST:
        said = ended.stdout.strip().partition("\n")[0]
        raise LaunchError(
            f"mpirun={mpirun}: expected Open MPI {_OLDEST} or later, it says {said!r}: "
            "leave --mpirun out to take the one that came with ddlplan"
        )
    return int(found[1])
