"""Folder for mpirun's own files, one for each job."""

from __future__ import annotations

from collections.abc import Mapping

from launch.system.temporary_folder import TemporaryFolder

_SETTINGS = {
    "PRTE_MCA_prte_local_tmpdir_base": "PRTE_MCA_prte_tmpdir_base",
    "OMPI_MCA_orte_local_tmpdir_base": "OMPI_MCA_orte_tmpdir_base",
}
"""Open MPI's variables from version 5 on, and before; with each the one that it excludes."""


class MpirunScratch:
    """The folder of one mpirun, removed when it is closed.

    By default Open MPI makes ``/tmp/ompi.PID``, and leaves it there when it is killed. A later
    mpirun that happens to get the same process number finds it and ends with 213, "listener thread
    failed to start" (5.0.11). Only where mpirun itself runs: what a daemon leaves on another host
    cannot be removed.

    Args:
        environment: In which mpirun will be started. The user's own settings in it stay.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._folder = TemporaryFolder()
        self._variables = [
            f"{name}={self._folder.path}"
            for name, excluded in _SETTINGS.items()
            if not {name, excluded} & environment.keys()
        ]

    def wrap(self, command: list[str]) -> list[str]:
        """Give the command that becomes mpirun, with its files in this folder."""
        return ["/usr/bin/env", *self._variables, *command]

    @property
    def locks(self) -> tuple[int, ...]:
        """Descriptors that mpirun is started with, so that the folder stays while it runs."""
        return self._folder.locks

    def close(self) -> None:
        """Remove the folder; mpirun has ended."""
        self._folder.close()
