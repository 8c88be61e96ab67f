"""Process identity: one process of one boot of one machine, told from a later one of its number.

The kernel gives numbers of processes again. With the time at which a process started, the boot and
the namespace that its number belongs to, it is one process:
https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html.
"""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path

from probes.kernel_files import ROOT, read_process_stat, read_text

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

    pid_namespace: str = ""
    """What its number belongs to: each container has a namespace of its own, on the same boot."""

    @staticmethod
    def of(pid: int | None = None, root: Path = ROOT) -> ProcessIdentity | None:
        """Identify a process, this one by default; ``None`` where it has ended."""
        pid = os.getpid() if pid is None else pid
        fields = read_process_stat(root / f"proc/{pid}")
        if fields is None:
            return None
        return ProcessIdentity(
            machine=platform.node(),
            boot_id=read_boot_id(root),
            pid=pid,
            started_ticks=int(fields[_START_FIELD]),
            pid_namespace=read_pid_namespace(root),
        )

    def is_alive(self, root: Path = ROOT) -> bool | None:
        """Whether it runs; one that has ended and is not yet reaped does not.

        ``None`` where this process cannot tell: the other is of another boot, which may be that of
        another machine with the same name, or of another container, or hidden from this user.
        """
        if self.boot_id != read_boot_id(root) or self.pid_namespace != read_pid_namespace(root):
            return None
        fields = read_process_stat(root / f"proc/{self.pid}")
        if fields is None:
            return None if _is_hidden(self.pid) else False
        is_this_one = int(fields[_START_FIELD]) == self.started_ticks
        return is_this_one and fields[_STATE_FIELD] not in "ZX"

    def is_here(self) -> bool:
        """Whether it was a process of this machine, so that its files may be here."""
        return self.machine == platform.node()

    def is_of_earlier_boot(self) -> bool:
        """Whether this machine has been started anew since."""
        return self.is_here() and self.boot_id != read_boot_id()


def read_boot_id(root: Path = ROOT) -> str:
    """Read which boot of which machine this is; empty where the kernel does not say."""
    return read_text(root / "proc/sys/kernel/random/boot_id") or ""


def read_pid_namespace(root: Path = ROOT) -> str:
    """Read which numbers of processes this process sees; empty where the kernel does not say."""
    try:
        return str((root / "proc/self/ns/pid").readlink())
    except OSError:
        return ""


def _is_hidden(pid: int) -> bool:
    """Whether there is such a process, of a user whose processes ``/proc`` hides (hidepid)."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return False
