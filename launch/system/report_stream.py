"""Report stream: a rank's reports on stdout, in whole lines from any thread."""

from __future__ import annotations

import os
from threading import Lock

from launch.reports import Report

_STDOUT = 1
_TRY_LIMIT_S = 1.0


class ReportStream:
    """Stream of a rank's reports, one JSON document a line; mpirun forwards it."""

    def __init__(self) -> None:
        self._lock = Lock()

    def send(self, report: Report) -> None:
        """Write a report, after that of another thread."""
        with self._lock:
            self._write(report)

    def try_send(self, report: Report) -> None:
        """Write a report, unless another thread's takes too long: nobody reads the stream then."""
        if self._lock.acquire(timeout=_TRY_LIMIT_S):
            try:
                self._write(report)
            finally:
                self._lock.release()

    def _write(self, report: Report) -> None:
        line = memoryview(report.encode())
        while line:
            line = line[os.write(_STDOUT, line) :]
