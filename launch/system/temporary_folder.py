"""Temporary folder: removed by its owner, or by who makes the next one where that was killed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from launch.system.cache import try_lock
from launch.system.process_identity import read_boot_id, read_pid_namespace
from launch.system.process_tree import find_users

PREFIX = "ddlplan-"
"""Begin of the names of all such folders."""

_BEING_MADE = ".being-made"
"""End of the name of a folder that is not locked yet: nobody uses it."""

_MOST_MAKING_S = 3600.0
"""Age of such a folder whose maker counts as killed. One that was only stopped makes another."""

_BEING_REMOVED = ".being-removed"
"""End of the name of a folder that nobody uses any more. Whoever finds it removes the rest: its
lock file may be gone already."""

_OWNER, _PROCESSES = ".owner-", ".processes-"
"""Begins of the names of lock files. A folder with the first is used only by those who have its
lock, a folder with the second also by processes without it."""


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
        remove_abandoned(Path(place))
        self.path, self.locks = _make(Path(place), PREFIX, _owner_name())
        """Descriptors for programs that are started to use the folder: it stays while they have
        them. Empty where there can be no lock; then only the owner removes it."""

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the folder."""
        locks, self.locks = self.locks, ()
        remove_folders([self.path], locks)


def make_for_processes() -> tuple[Path, tuple[int, ...]]:
    """Make a folder where temporary files are, and lock it as `lock_for_processes` does.

    Returns:
        The folder, and the descriptors.
    """
    return _make(Path(tempfile.gettempdir()), f"{PREFIX}script-", _processes_name())


def make_of_same_name(folder: Path, place: Path) -> tuple[Path, tuple[int, ...]]:
    """Make a folder of the same name in another place, and lock it likewise.

    Processes that have the name in their environment use both.
    """
    return _make(place, f"{folder.name}.", _processes_name(), name=folder.name)


def lock_for_processes(folder: Path) -> tuple[int, ...]:
    """Lock a folder that is also used by processes without the lock.

    It stays while somebody has the lock, and after that while a process works in the folder or has
    its name in its environment: users' programs may outlive who has started them.

    Returns:
        Descriptors; empty where there can be no lock, and only the owner removes the folder.
    """
    return _lock(folder, _processes_name())


def is_own_folder(path: Path) -> bool:
    """Whether there is a folder of this user, and no link to one."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def remove_folders(folders: Iterable[Path], opened: Iterable[int] = ()) -> None:
    """Remove folders with all in them, also folders that are closed to their owner.

    Args:
        folders: Nobody else needs them any more.
        opened: Descriptors of files in them, which are closed.
    """
    doomed = [_rename_for_removal(folder) for folder in folders]
    for descriptor in opened:  # first: NFS keeps a folder with a file that is open
        os.close(descriptor)
    for folder in doomed:
        _open_to_owner(folder)
        shutil.rmtree(folder, ignore_errors=True)


def remove_abandoned(place: Path) -> None:
    """Remove the folders in a place of which it is sure that nobody has them any more."""
    with contextlib.suppress(OSError):
        for folder in place.glob(f"{PREFIX}*"):
            with contextlib.suppress(OSError):
                if is_own_folder(folder) and _is_abandoned(folder):
                    remove_folders([folder])  # what others are removing too does no harm


def _is_abandoned(folder: Path) -> bool:
    if folder.suffix == _BEING_REMOVED:
        return True
    if folder.suffix == _BEING_MADE:
        return time.time() - folder.stat().st_mtime > _MOST_MAKING_S
    names = [file.name for file in folder.iterdir() if file.name.startswith((_OWNER, _PROCESSES))]
    match names:
        case [name] if name == _owner_name():
            return _can_lock(folder / name)
        case [name] if name == _processes_name():
            return _can_lock(folder / name) and not find_users(folder)
    return False  # there can be no lock, or there are users of other kernels or containers


def _can_lock(file: Path) -> bool:
    descriptor = os.open(file, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        return try_lock(descriptor)
    finally:
        os.close(descriptor)  # before the folder is removed, for NFS


def _make(
    place: Path, prefix: str, lock: str | None, name: str | None = None
) -> tuple[Path, tuple[int, ...]]:
    """Make a folder; it has its name only once it is locked, where it can be."""
    while True:
        made = Path(tempfile.mkdtemp(prefix=prefix, suffix=_BEING_MADE, dir=place))
        opened = _lock(made, lock)
        with contextlib.suppress(FileNotFoundError):  # this was stopped, and counted as killed
            return made.rename(made.with_name(name or made.stem)), opened
        for descriptor in opened:
            os.close(descriptor)


def _lock(folder: Path, name: str | None) -> tuple[int, ...]:
    """Lock a new folder; its file has its name only once it is locked."""
    if name is None:
        return ()
    file = folder / f"{name}.new"
    with contextlib.ExitStack() as opened, contextlib.suppress(OSError):
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        descriptor = os.open(file, flags, 0o600)
        opened.callback(os.close, descriptor)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        file.rename(folder / name)
        opened.pop_all()
        return (descriptor,)
    return ()


def _owner_name() -> str | None:
    """Name the lock file of a folder of this boot; ``None`` where the kernel does not say which."""
    boot_id = read_boot_id()
    return f"{_OWNER}{boot_id}" if boot_id else None


def _processes_name() -> str | None:
    """Name the lock file of a folder that processes of this boot and container use.

    Those of another container on this boot cannot be found from here. ``None`` where the kernel
    does not say which boot or container this is.
    """
    boot_id, namespace = read_boot_id(), read_pid_namespace()
    return f"{_PROCESSES}{boot_id}-{namespace}" if boot_id and namespace else None


def _rename_for_removal(folder: Path) -> Path:
    if folder.suffix != _BEING_REMOVED:
        with contextlib.suppress(OSError):
            return folder.rename(f"{folder}{_BEING_REMOVED}")
    return folder


def _open_to_owner(folder: Path) -> None:
    """Let its owner remove what is in a folder, such as the working folder of an overlay."""
    for parent, names, _ in os.walk(folder):
        for name in names:
            path = Path(parent, name)
            if not path.is_symlink():
                with contextlib.suppress(OSError):
                    path.chmod(0o700)
