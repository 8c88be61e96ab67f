"""May root run a job? Only where the user says so: a slip of root's can ruin the machine."""

from __future__ import annotations

import os
from collections.abc import Mapping


def is_root() -> bool:
    """Whether mpirun would refuse to run without being told twice."""
    return os.geteuid() == 0


def root_is_allowed(environment: Mapping[str, str]) -> bool:
    """Whether the user has already told Open MPI that root may run it."""
    names = ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")
    return all(environment.get(name) == "1" for name in names)


def needs_root_option(environment: Mapping[str, str]) -> bool:
    """Whether mpirun must be told by an option that root may run it."""
    return is_root() and not root_is_allowed(environment)
