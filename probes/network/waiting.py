"""Waiting for other ranks by polling, which leaves the core to others."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mpi4py import MPI

POLL_S = 0.0005
"""Time between two polls."""


def wait(request: MPI.Request) -> None:
    """Wait until a message, or a collective operation, is done."""
    while not request.Test():
        time.sleep(POLL_S)
