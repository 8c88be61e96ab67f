"""Where does ddlplan keep what it can make again?"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkstemp
from typing import Any

from launch.errors import UseCaseError


def cache_folder() -> Path:
    """Return ``$DDLPLAN_CACHE``, else ``$XDG_CACHE_HOME/ddlplan``, else ``~/.cache/ddlplan``."""
    if own := os.environ.get("DDLPLAN_CACHE"):
        return Path(own).expanduser().absolute()
    # The XDG standard has relative paths ignored.
    shared = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (shared if shared.is_absolute() else Path.home() / ".cache") / "ddlplan"


def make_folder(folder: Path) -> Path:
    """Make a folder of the cache with those above it.

    Raises:
        UseCaseError: It cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise not_writable(folder, error) from error
    return folder


_ASK_AGAIN_S = 0.5


@contextmanager
def only_one(made: Path, on_wait: Callable[[], None] = lambda: None) -> Iterator[int]:
    """Keep others out while something of the cache is made: by a lock file beside it.

    Those are processes of this machine, and of others that share the folder.

    Args:
        made: What is made.
        on_wait: Called now and then while another process has the lock.

    Yields:
        The descriptor of the lock. It holds until every process that inherits it is gone.
    """
    make_folder(made.parent)
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    lock = os.open(made.with_name(f"{made.name}.lock"), flags, 0o600)
    try:
        while not _has_locked(lock):
            on_wait()
            time.sleep(_ASK_AGAIN_S)
        yield lock
    finally:
        os.close(lock)


def _has_locked(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def write_json(file: Path, document: Any) -> None:
    """Replace a file at one stroke; nobody else may read it.

    Raises:
        UseCaseError: It cannot be written.
    """
    make_folder(file.parent)
    try:
        handle, name = mkstemp(dir=file.parent, prefix=f".{file.name}.")  # made 0600
        part = Path(name)
        try:
            with os.fdopen(handle, "w", encoding="ascii") as stream:
                json.dump(document, stream)
            part.replace(file)
        except BaseException:
            part.unlink()
            raise
    except OSError as error:
        raise not_writable(file.parent, error) from error


def read_json(file: Path) -> Any:
    """Read a file of the cache, ``None`` where it is missing or damaged."""
    try:
        return json.loads(file.read_bytes())
    except (OSError, ValueError):
        return None


def not_writable(folder: Path, error: OSError) -> UseCaseError:
    """Say that the cache does not take what belongs into it."""
    reason = error.strerror or str(error)
    return UseCaseError(
        f"cannot write into the cache {folder}: {reason}: make room there, "
        "or set DDLPLAN_CACHE to a folder elsewhere"
    )
