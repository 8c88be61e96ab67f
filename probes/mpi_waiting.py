"""How does a rank wait for the others without keeping a core busy? It looks now and then."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mpi4py import MPI

LOOK_S = 0.0005
"""Between two looks."""


def wait(request: MPI.Request) -> None:
    """Wait until a message, or a collective operation, is done."""
    while not request.Test():
        time.sleep(LOOK_S)
