"""Process identity: one process of one boot of one machine, told from a later one of its number.

The kernel gives numbers of processes again. With the time at which a process started, and the
boot, it is one process: https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html.
"""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path

from probes.kernel_files import ROOT, read_text

_START_FIELD, _STATE_FIELD = 19, 0
"""Fields of ``/proc/<pid>/stat`` behind the name, which may hold anything in parentheses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessIdentity:
    """A process that can be found again."""

    machine: str
    """Name of the machine."""

    boot_id: str
    pid: int

    started_ticks: int
    """Time of its start since the boot, in ticks of the kernel's clock."""

    @staticmethod
    def of(pid: int | None = None, root: Path = ROOT) -> ProcessIdentity | None:
        """Identify a process, this one by default; ``None`` where it has ended."""
        pid = os.getpid() if pid is None else pid
        fields = _read_stat(pid, root)
        if fields is None:
            return None
        return ProcessIdentity(
            machine=platform.node(),
            boot_id=_read_boot_id(root),
            pid=pid,
            started_ticks=int(fields[_START_FIELD]),
        )

    def is_here(self, root: Path = ROOT) -> bool:
        """Whether it was a process of this machine, so that `is_alive` can tell."""
        return self.machine == platform.node() or self.boot_id == _read_boot_id(root)

    def is_alive(self, root: Path = ROOT) -> bool:
        """Whether it runs on this machine. One that has ended and is not yet reaped does not."""
        fields = _read_stat(self.pid, root)
        return (
            fields is not None
            and fields[_STATE_FIELD] not in "ZX"
            and int(fields[_START_FIELD]) == self.started_ticks
            and self.boot_id == _read_boot_id(root)
        )


def _read_boot_id(root: Path) -> str:
    return (read_text(root / "proc/sys/kernel/random/boot_id") or "").strip()


def _read_stat(pid: int, root: Path) -> list[str] | None:
    stat = read_text(root / f"proc/{pid}/stat")
    return None if not stat else stat.rpartition(")")[2].split()
