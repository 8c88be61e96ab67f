"""Folder for mpirun's own files, one for each job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

_SETTINGS = {
    "PRTE_MCA_prte_local_tmpdir_base": "PRTE_MCA_prte_tmpdir_base",
    "OMPI_MCA_orte_local_tmpdir_base": "OMPI_MCA_orte_tmpdir_base",
}
"""Open MPI's variables from version 5 on, and before; with each the one that it excludes."""


def with_files_in(
    folder: Path, command: Sequence[str], environment: Mapping[str, str]
) -> list[str]:
    """Give the command that becomes mpirun, with its files in a folder that is removed afterwards.

    By default Open MPI makes ``/tmp/ompi.PID``, and leaves it there when it is killed. A later
    mpirun that happens to get the same process number finds it and ends with 213, "listener thread
    failed to start" (5.0.11). Only where mpirun itself runs: what a daemon leaves on another host
    cannot be removed.

    Args:
        folder: A `launch.system.temporary_folder.TemporaryFolder` of this job alone.
        command: Of mpirun.
        environment: In which mpirun will be started. The user's own settings in it stay.
    """
    variables = [
        f"{name}={folder}"
        for name, excluded in _SETTINGS.items()
        if not {name, excluded} & environment.keys()
    ]
    return ["/usr/bin/env", *variables, *command]
