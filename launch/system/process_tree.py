"""Process tree: all that a command has started, and what it leaves when it ends.

A process whose parent ends gets the nearest subreaper above it as its parent, else the first
process of the machine: https://man7.org/linux/man-pages/man2/PR_SET_CHILD_SUBREAPER.2const.html.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from probes.kernel_files import read_process_stat

_PR_SET_CHILD_SUBREAPER = 36  # from linux/prctl.h
_PIDFD_OPEN = 434  # from asm-generic/unistd.h
_STATE, _PARENT = 0, 1
SESSION = 3
"""Places of what `list_running` gives of a process."""

_POLL_S = 0.05
_GIVE_UP_S = 5.0
"""After SIGKILL: what is in the middle of a call of the kernel ends when that does."""


def adopt_orphans() -> None:
    """Become the parent of all descendants whose own parents end."""
    import ctypes  # not to read a database, as below

    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def reap_orphans(child: int) -> None:
    """Let adopted processes that have ended vanish; ``child`` stays for who waits for it."""
    while (ended := _find_ended()) not in (None, child):
        assert ended is not None
        with contextlib.suppress(ChildProcessError):
            os.waitpid(ended, os.WNOHANG)


def open_end(child: int) -> list[int]:
    """Open what is readable, for `select`, once a child has ended; nothing where the kernel cannot.

    Not by `os`: Python that was built on an old system, as conda's and uv's, has no such call.
    """
    import ctypes

    descriptor = ctypes.CDLL(None).syscall(ctypes.c_long(_PIDFD_OPEN), child, 0)
    return [descriptor] if descriptor >= 0 else []


def has_ended(child: int) -> bool:
    """Whether a child has ended; its number stays taken until somebody waits for it."""
    flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
    try:
        return os.waitid(os.P_PID, child, flags) is not None
    except ChildProcessError:  # where SIGCHLD is ignored, children leave nothing to wait for
        return True


def end_descendants(*, grace_s: float) -> None:
    """End all descendants of this process, as `end_all` does."""
    end_all(lambda: find_descendants(os.getpid()), grace_s=grace_s, reaps=True)
    reap_all()


def end_all(find: Callable[[], set[int]], *, grace_s: float, reaps: bool = False) -> None:
    """End processes, in bounded time: by SIGTERM, and what is left then by SIGKILL.

    Args:
        find: Finds those that have not ended; they may start others meanwhile.
        grace_s: Time in which they may end by themselves.
        reaps: Let children of this process that have ended vanish meanwhile: who started a daemon
            that was adopted here may wait until nothing has its number.
    """
    deadline, number = time.monotonic() + grace_s, signal.SIGTERM
    told: set[int] = set()
    while left := find():
        if time.monotonic() > deadline + _GIVE_UP_S:
            return
        if time.monotonic() > deadline:
            number, told = signal.SIGKILL, set()
        send_signal(left - told, number)
        send_signal(left - told, signal.SIGCONT)  # what stands still takes no signal but SIGKILL
        told |= left
        time.sleep(_POLL_S)
        if reaps:
            reap_all()


def reap_all() -> None:
    """Let all children that have ended vanish, so that they are not waited for."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def send_signal(pids: Iterable[int], number: int) -> None:
    """Send a signal to processes; those that are gone, or another user's, are left out."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def list_pids() -> list[int]:
    """List the numbers of all processes that this one can see."""
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]  # noqa: PTH208 - names


def list_running() -> Iterator[tuple[int, list[str]]]:
    """Give each process that has not ended, with what `read_process_stat` gives of it.

    That is its state, its parent, its group, its session and so on.
    """
    for pid in list_pids():
        fields = read_process_stat(Path(f"/proc/{pid}"))
        if fields is not None and fields[_STATE] not in "ZX":
            yield pid, fields


def is_stopped(pid: int) -> bool:
    """Whether a process is stopped, as by SIGSTOP."""
    fields = read_process_stat(Path(f"/proc/{pid}"))
    return fields is not None and fields[_STATE] in "Tt"


def find_descendants(ancestor: int) -> set[int]:
    """Find the processes that run below one."""
    children: dict[int, list[int]] = {}
    for pid, fields in list_running():
        children.setdefault(int(fields[_PARENT]), []).append(pid)
    found, left = set[int](), [ancestor]
    while left:
        for child in children.get(left.pop(), ()):
            if child not in found:
                found.add(child)
                left.append(child)
    return found


def find_marked(variable: str, value: str) -> set[int]:
    """Find the processes that were started with a variable in their environment."""
    marker = f"{variable}={value}".encode()
    found = set[int]()
    for pid in list_pids():
        with contextlib.suppress(OSError):
            if marker in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                found.add(pid)
    return found


def find_users(folder: Path) -> set[int]:
    """Find the processes that work in a folder, or have its name in their environment."""
    name, found = os.fsencode(folder.name), set[int]()
    for pid in list_pids():
        process = Path("/proc", str(pid))
        with contextlib.suppress(OSError):
            is_named = name in (process / "environ").read_bytes()
            if is_named or name in bytes((process / "cwd").readlink()):
                found.add(pid)
    return found


def _find_ended() -> int | None:
    """Find a child that has ended, without reaping it."""
    try:
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    return None if ended is None else ended.si_pid
