"""What has a command started that is still there when it has ended? Its session tells."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

_LOOK_S = 0.05


def end_session(leader: int, *, patience_s: float) -> None:
    """End every process of a session: by SIGTERM first, and what is left then by SIGKILL.

    mpirun gives its logins and its ranks process groups of their own, but they stay in its session.

    Args:
        leader: Process number of the command, which began the session and has ended.
        patience_s: What they have to end by themselves, such as ranks their workers.
    """
    _send(leader, signal.SIGTERM)
    give_up = time.monotonic() + patience_s
    while _members(leader):
        if time.monotonic() > give_up:
            _send(leader, signal.SIGKILL)
            return
        time.sleep(_LOOK_S)


def _send(leader: int, number: int) -> None:
    for pid in _members(leader):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _members(leader: int) -> list[int]:
    """Give the processes of a session that have not ended."""
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal():
            continue
        with contextlib.suppress(OSError):
            state, _, _, session = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
            if int(session) == leader and state not in "ZX":
                found.append(int(folder.name))
    return found
