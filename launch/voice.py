"""How does a rank speak? In whole lines on stdout, whichever of its threads speaks."""

from __future__ import annotations

import os
from threading import Lock

from launch.workers.reports import Report

_STDOUT = 1


class Voice:
    """What a rank says, one JSON document a line; mpirun passes it on."""

    def __init__(self, descriptor: int = _STDOUT) -> None:
        self._descriptor = descriptor
        self._lock = Lock()

    def say(self, report: Report) -> None:
        """Say something, after what another thread is saying."""
        with self._lock:
            self._write(report)

    def try_to_say(self, report: Report, limit_s: float) -> None:
        """Say something, but not after what has taken so long: nobody listens to us then."""
        if self._lock.acquire(timeout=limit_s):
            try:
                self._write(report)
            finally:
                self._lock.release()

    def _write(self, report: Report) -> None:
        line = memoryview(report.encode())
        while line:
            line = line[os.write(self._descriptor, line) :]
