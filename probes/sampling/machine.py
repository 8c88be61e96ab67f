"""Counters of the machine, whoever used it: busy cores, waiting for disks, network."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from probes.kernel_files import ROOT, read_text
from probes.usage import TICKS_PER_S

_IDLE, _IO_WAIT, _STEAL = 3, 4, 7
"""Fields of the first line of ``/proc/stat``: proc_stat(5)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineCounters:
    """Totals since the machine was started: only differences mean anything."""

    busy_s: float
    """Time in which cores computed, summed over them."""

    io_wait_s: float
    """Time in which idle cores waited for a disk."""

    received_bytes: int
    """Through all interfaces but loopback."""

    sent_bytes: int


def read_counters(root: Path = ROOT) -> MachineCounters:
    """Read the counters; 0 where the kernel does not tell."""
    line = (read_text(root / "proc/stat") or "").partition("\n")[0]
    ticks = [int(field) for field in line.split()[1:]] if line.startswith("cpu ") else []
    io_wait = ticks[_IO_WAIT] if len(ticks) > _IO_WAIT else 0
    idle = ticks[_IDLE] if len(ticks) > _IDLE else 0
    received_bytes, sent_bytes = _network_bytes(root)
    return MachineCounters(
        # what comes after the time that a hypervisor took is a part of the first two fields
        busy_s=(sum(ticks[:_STEAL]) - idle - io_wait) / TICKS_PER_S,
        io_wait_s=io_wait / TICKS_PER_S,
        received_bytes=received_bytes,
        sent_bytes=sent_bytes,
    )


def _network_bytes(root: Path) -> tuple[int, int]:
    received_bytes = sent_bytes = 0
    for line in (read_text(root / "proc/net/dev") or "").splitlines():
        name, _, counters = line.partition(":")
        fields = counters.split()
        if len(fields) >= 9 and name.strip() != "lo":
            received_bytes += int(fields[0])
            sent_bytes += int(fields[8])
    return received_bytes, sent_bytes
