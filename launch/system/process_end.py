"""Processes that end with their owner, and exit codes in words.

Run as a program, ``python -m launch.system.process_end PARENT PROGRAM ...`` becomes PROGRAM,
which gets SIGTERM when the process PARENT dies. That happens before every program of a job, and
psutil, which could read ``/proc`` for us, would take longer to import than all of this.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from pathlib import Path

_PR_SET_PDEATHSIG = 1  # from linux/prctl.h


def die_with_parent(parent: int, signal_number: int = signal.SIGKILL) -> None:
    """Have the kernel end this process when its parent dies, however that happens.

    Args:
        parent: The parent's process number; it may have died before this call.
        signal_number: What this process is sent.
    """
    if signal_number != signal.SIGKILL:  # or a handler from before the fork would take it
        signal.signal(signal_number, signal.SIG_DFL)
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal_number, 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal_number)


def outlive_parent() -> None:
    """Undo `die_with_parent`."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, 0, 0, 0, 0)


def prefer_for_oom_kill() -> None:
    """Have the kernel end this process before its owner when memory is short."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def kill_group(leader: int, number: int = signal.SIGKILL) -> None:
    """Send every process of a group a signal, which by default ends them at once.

    None left is no error, nor are those of another user, as where a command begins with sudo.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)


def read_parent_name() -> str:
    """Read the name of this process's parent, empty where it cannot be read."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{os.getppid()}/comm").read_text(errors="replace").strip()
    return ""


def explain_exit(code: int) -> str:
    """Explain how a process ended.

    >>> explain_exit(-9)
    'killed by signal 9 (SIGKILL)'
    """
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by signal {-code} ({signal.Signals(-code).name})"
    except ValueError:
        return f"killed by signal {-code}"


def bind_to_parent(command: list[str]) -> list[str]:
    """Wrap a command so that the program gets SIGTERM when this process dies."""
    return [sys.executable, "-P", "-m", __name__, str(os.getpid()), *command]


if __name__ == "__main__":
    die_with_parent(int(sys.argv[1]), signal.SIGTERM)
    os.execvp(sys.argv[2], sys.argv[2:])  # noqa: S606 - an argument list, and no shell
