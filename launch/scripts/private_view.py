"""Private view of a folder: writes go elsewhere, by a mount that only one program's processes see.

The current folder is covered, under its own name, by a file system that reads from it and writes
to a folder of ours: https://docs.kernel.org/filesystems/overlayfs.html. The mount is in a mount
namespace, and for a user who may not mount in a user namespace as well: it ends with the last of
the processes. Standard library only: it runs before a script starts.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

_CLONE_NEWNS, _CLONE_NEWUSER = 0x00020000, 0x10000000
_MS_REC, _MS_PRIVATE = 0x4000, 1 << 18


def cover(folder: str, upper: str, work: str) -> None:
    """Cover a folder in a new mount namespace of this process, and enter it there.

    Raises:
        OSError: The kernel or its settings do not allow it here.
    """
    if has_mounts_below(folder):
        raise OSError(f"{folder} has other file systems below it")
    user, group = os.geteuid(), os.getegid()
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"lowerdir={_escape(folder)},upperdir={_escape(upper)},workdir={_escape(work)}"
    if libc.unshare(_CLONE_NEWNS) != 0:
        _check(libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNS), "unshare")
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
        options += ",userxattr"
    _check(libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None), "mount")
    target = os.fsencode(folder)
    _check(libc.mount(b"overlay", target, b"overlay", 0, os.fsencode(options)), "mount overlay")
    os.chdir(folder)


def has_mounts_below(folder: str, mounts: Path = Path("/proc/self/mountinfo")) -> bool:
    """Whether other file systems are mounted below a folder: an overlay would hide them."""
    begin = os.fsencode(folder.rstrip("/") + "/")
    points = (line.split()[4] for line in mounts.read_bytes().splitlines())
    return any(_unescape(point).startswith(begin) for point in points)


def _escape(path: str) -> str:
    for letter in "\\:,":
        path = path.replace(letter, "\\" + letter)
    return path


def _unescape(path: bytes) -> bytes:
    return path.decode("unicode_escape").encode("latin-1")


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


if __name__ == "__main__":
    cover(*sys.argv[1:4])
