"""Numbered slot: the names and addresses that are one testbed's alone.

A slot is taken by a lock on a file, which the kernel drops when the process ends, however that
happens. Whoever finds a slot free thus knows that anything left of it is nobody's, and sweeps it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

from testbed.cgroups import CGroup
from testbed.programs import TestbedError, run

_LOCKS = Path("/run/ddlplan-testbed")
_SLOTS = 250


class Slot:
    """Names and addresses for one testbed."""

    def __init__(self) -> None:
        _LOCKS.mkdir(mode=0o700, exist_ok=True)
        for number in range(1, _SLOTS):
            if (lock := _try_lock(_LOCKS / str(number))) is not None:
                break
        else:
            raise TestbedError(f"all {_SLOTS} slots of {_LOCKS} are taken")
        self._lock = lock
        self.number = number
        self.name = f"ddlbed{number}"
        _sweep(self.name)
        self.folder = Path(tempfile.mkdtemp(prefix=f"{self.name}-"))

    @property
    def network(self) -> str:
        """The network of the hosts; this range is set aside for benchmarks of networks."""
        return f"198.18.{self.number}.0/24"

    def address(self, host: int) -> str:
        """Give the address of the i-th host, from 1; 254 is this machine's."""
        return f"198.18.{self.number}.{host}"

    def address_v6(self, host: int) -> str:
        """Give its second address, of version 6."""
        return f"fd64:6c70:{self.number:x}::{host:x}"

    def free(self) -> None:
        """Leave the slot to others."""
        _sweep(self.name)
        shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self._lock)


def sweep_free_slots() -> None:
    """Remove what killed processes have left of their testbeds."""
    for file in _LOCKS.iterdir() if _LOCKS.is_dir() else ():
        if (lock := _try_lock(file)) is not None:
            _sweep(f"ddlbed{file.name}")
            os.close(lock)


def _try_lock(file: Path) -> int | None:
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _sweep(name: str) -> None:
    for group in CGroup.existing(f"{name}-"):
        group.remove()
    # Its other end goes with its network namespace, when the last process there has ended.
    with contextlib.suppress(TestbedError):
        run(["ip", "link", "delete", name])
    for folder in Path(tempfile.gettempdir()).glob(f"{name}-*"):
        shutil.rmtree(folder, ignore_errors=True)
