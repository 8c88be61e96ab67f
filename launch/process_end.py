"""How does a process end with its owner, and how do we say how it ended?

Run as a program, ``python -m launch.process_end PARENT PROGRAM ...`` becomes PROGRAM,
which gets SIGTERM when the process PARENT dies.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from pathlib import Path

_PR_SET_PDEATHSIG = 1  # from linux/prctl.h


def end_with_parent(parent: int, signal_number: int = signal.SIGKILL) -> None:
    """Ask the kernel to end this process when its parent dies, however that happens.

    Args:
        parent: The parent's process number; it may have died before this call.
        signal_number: What this process is sent.
    """
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal_number, 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal_number)


def outlive_parent() -> None:
    """Take back `end_with_parent`."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, 0, 0, 0, 0)


def offer_to_oom_killer() -> None:
    """Let the kernel end this process before others when memory is short: never its owner."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def kill_group(leader: int) -> None:
    """End every process of a group at once; none left is no error."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def is_stopped(pid: int) -> bool:
    """Whether a process stands still because it was told to."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state in ("T", "t")


def explain_exit(code: int) -> str:
    """Say in words how a process ended.

    >>> explain_exit(-9)
    'killed by signal 9 (SIGKILL)'
    """
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by signal {-code} ({signal.Signals(-code).name})"
    except ValueError:
        return f"killed by signal {-code}"


def bound_command(command: list[str]) -> list[str]:
    """Wrap a command so that the program gets SIGTERM when this process dies."""
    return [sys.executable, "-P", "-m", __name__, str(os.getpid()), *command]


if __name__ == "__main__":
    end_with_parent(int(sys.argv[1]), signal.SIGTERM)
    os.execvp(sys.argv[2], sys.argv[2:])  # noqa: S606 - an argument list, and no shell
