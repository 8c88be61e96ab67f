"""Burner: a process that computes and sleeps in turn, beside what is measured."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_BURN = """
import os, random, time
parent, draw = os.getppid(), random.Random()
while os.getppid() == parent:
    end = time.monotonic() + draw.expovariate(1 / 3)
    while time.monotonic() < end:
        pass
    time.sleep(draw.expovariate(1 / 3))
"""


@contextmanager
def burning() -> Iterator[None]:
    """Let a process burn half a core in this block, in pieces of 3 s on average."""
    with subprocess.Popen([sys.executable, "-c", _BURN]) as process:
        try:
            yield
        finally:
            process.kill()
