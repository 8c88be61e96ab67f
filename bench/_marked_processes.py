"""Processes that are known by a mark in their environment, whoever has started them."""

from __future__ import annotations

import os
import signal
import uuid
from contextlib import suppress

import psutil


class MarkedProcesses:
    """Processes that are started with `variables`, and all that these start."""

    def __init__(self) -> None:
        self.variables = {"BENCH_MARK": uuid.uuid4().hex}

    def find(self) -> dict[int, str]:
        """Give their command lines, by their numbers."""
        found = {}
        for process in psutil.process_iter():
            with suppress(psutil.Error):  # it has ended, or is not ours
                if self.variables.items() <= process.environ().items():
                    found[process.pid] = " ".join(process.cmdline())
        return found

    def end(self) -> None:
        """Kill all of them."""
        for pid in self.find():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
