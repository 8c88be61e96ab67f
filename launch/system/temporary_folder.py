"""Temporary folder: removed by its owner, or by who makes the next one where that was killed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from pathlib import Path

from launch.system.process_identity import read_boot_id

_PREFIX = "ddlplan-"


class TemporaryFolder:
    """A folder of this user alone. Use it in a ``with`` block; leaving it removes it.

    An owner that is killed leaves it. So whoever makes another one in the same place removes those
    that nobody has any more. Each has a file that is locked (flock) until the last process has
    ended that has it open, and whose name says of which boot it is: the place may be one that
    hosts share, and the locks of other kernels need not be seen by this one.

    Args:
        parent: Where it is made; ``None``: where temporary files are.
    """

    def __init__(self, parent: str | None = None) -> None:
        place = tempfile.gettempdir() if parent is None else parent
        _remove_abandoned(Path(place))
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place))
        self.locks = _lock(self.path)
        """Descriptors for programs that are started to use the folder: it stays while they have
        them. None where there can be no lock; then only the owner removes it."""

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the folder."""
        for descriptor in self.locks:  # first: NFS keeps a folder with a file that is open
            os.close(descriptor)
        self.locks = ()
        shutil.rmtree(self.path, ignore_errors=True)


def _lock(folder: Path) -> tuple[int, ...]:
    """Lock a new folder; its file has its name only once it is locked."""
    boot_id, nameless = read_boot_id(), folder / ".owner"
    if not boot_id:
        return ()
    with contextlib.ExitStack() as opened, contextlib.suppress(OSError):
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        descriptor = os.open(nameless, flags, 0o600)
        opened.callback(os.close, descriptor)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        nameless.rename(_lock_file(folder, boot_id))
        opened.pop_all()
        return (descriptor,)
    return ()


def _remove_abandoned(place: Path) -> None:
    """Remove the folders in a place of which it is sure that nobody has them any more."""
    if not (boot_id := read_boot_id()):
        return
    with contextlib.suppress(OSError):
        for folder in place.glob(f"{_PREFIX}*"):
            with contextlib.suppress(OSError):
                _remove_if_abandoned(folder, _lock_file(folder, boot_id))


def _remove_if_abandoned(folder: Path, lock_file: Path) -> None:
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        return
    descriptor = os.open(lock_file, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(descriptor)  # as in `close`; to remove what others are removing does no harm
    shutil.rmtree(folder, ignore_errors=True)


def _lock_file(folder: Path, boot_id: str) -> Path:
    return folder / f".owner-{boot_id}"
