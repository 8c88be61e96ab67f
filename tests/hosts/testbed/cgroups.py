"""Control group of a host, of version 1 or 2: how much of the machine the host gets.

It also holds every process of the host, so that none is missed when the host goes.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from testbed.programs import TestbedError

ROOT = Path("/sys/fs/cgroup")
PERIOD_S = 0.1
_CONTROLLERS = ("cpu", "cpuset")
_END_LIMIT_S = 60.0


def is_unified() -> bool:
    """Whether this machine has version 2 alone."""
    return (ROOT / "cgroup.controllers").is_file()


def find_obstacle() -> str | None:
    """Say why there can be no control groups; ``None`` where there can."""
    name = f"ddlplan-try-{os.getpid()}"
    try:
        CGroup(name).remove()
    except OSError as error:
        return f"a testbed needs control groups: {error}"
    return None


class CGroup:
    """A group of processes with its share of the machine. It is made when this object is."""

    def __init__(self, name: str) -> None:
        self._is_unified = is_unified()
        bases = [ROOT] if self._is_unified else [ROOT / one for one in _CONTROLLERS]
        self._folders = [base / name for base in bases]
        for base, folder in zip(bases, self._folders, strict=True):
            if self._is_unified:
                # Groups that hold processes cannot hand controllers on, but for the first of all.
                (base / "cgroup.subtree_control").write_text("+cpu +cpuset")
            folder.mkdir(exist_ok=True)
            if base.name == "cpuset":
                # Empty in a new group, and then nothing can run in it.
                for file in ("cpuset.cpus", "cpuset.mems"):
                    (folder / file).write_text((base / file).read_text())

    @classmethod
    def existing(cls, prefix: str) -> Iterator[CGroup]:
        """Find groups that an earlier process left."""
        base = ROOT if is_unified() else ROOT / _CONTROLLERS[0]
        for folder in base.glob(f"{prefix}*"):
            yield cls(folder.name)

    @property
    def files(self) -> list[Path]:
        """Where a process writes its number to be in the group."""
        return [folder / "cgroup.procs" for folder in self._folders]

    def pids(self) -> set[int]:
        """Give the processes in the group."""
        with contextlib.suppress(FileNotFoundError):
            return {int(pid) for pid in self.files[0].read_text().split()}
        return set()

    def set_quota(self, cores: float | None) -> None:
        """Allow the group this much time of cores, such as 0.5; ``None`` for all there is."""
        period = round(PERIOD_S * 1e6)
        quota = None if cores is None else round(cores * period)
        folder = self._folders[0]
        if self._is_unified:
            (folder / "cpu.max").write_text(f"{'max' if quota is None else quota} {period}")
        else:
            (folder / "cpu.cfs_period_us").write_text(str(period))
            (folder / "cpu.cfs_quota_us").write_text("-1" if quota is None else str(quota))

    def set_cores(self, cores: str) -> None:
        """Allow the group these cores only, such as ``0-1,3``."""
        (self._folders[-1] / "cpuset.cpus").write_text(cores)

    def kill(self) -> None:
        """End every process in the group, and those that they start meanwhile.

        Raises:
            TestbedError: Some do not end.
        """
        give_up = time.monotonic() + _END_LIMIT_S
        while pids := self.pids():
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if time.monotonic() > give_up:
                raise TestbedError(f"processes {sorted(pids)} of {self._folders[0]} do not end")
            time.sleep(0.01)

    def remove(self) -> None:
        """End what is in the group, and the group."""
        self.kill()
        for folder in self._folders:
            # The kernel may take a moment to see that the last process has gone.
            for _ in range(100):
                with contextlib.suppress(OSError):
                    folder.rmdir()
                if not folder.exists():
                    break
                time.sleep(0.01)
