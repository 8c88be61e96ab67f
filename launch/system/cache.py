"""Cache folder: files that ddlplan can make again, with locks and JSON files.

The locks are not filelock's: child processes inherit a descriptor of ours, and with it the lock.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkstemp
from typing import TypeVar

from launch.errors import UseCaseError
from probes import codec
from probes.errors import InvalidDocumentError

T = TypeVar("T")


def cache_folder() -> Path:
    """Return ``$DDLPLAN_CACHE``, else ``$XDG_CACHE_HOME/ddlplan``, else ``~/.cache/ddlplan``.

    Raises:
        UseCaseError: It is below a home folder that nobody knows.
    """
    own = os.environ.get("DDLPLAN_CACHE")
    # The XDG standard has relative paths ignored.
    shared = Path(os.environ.get("XDG_CACHE_HOME", ""))
    try:
        if own:
            return Path(own).expanduser().absolute()
        return (shared if shared.is_absolute() else Path.home() / ".cache") / "ddlplan"
    except RuntimeError as error:  # of an unknown user, or of one without a home
        raise UseCaseError(
            f"cache {own or '~/.cache/ddlplan'}: there is no such home folder: "
            "set DDLPLAN_CACHE to an absolute path"
        ) from error


def make_folder(folder: Path) -> Path:
    """Make a folder of the cache with those above it.

    Raises:
        UseCaseError: It cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise make_cache_write_error(folder, error) from error
    return folder


_RETRY_S = 0.5


@contextmanager
def cache_lock(made: Path, on_wait: Callable[[], None] = lambda: None) -> Iterator[int]:
    """Lock a part of the cache while it is made, by a lock file beside it.

    The lock also holds for processes of other machines that share the folder.

    Args:
        made: What is made.
        on_wait: Called now and then while another process has the lock.

    Yields:
        The descriptor of the lock. The lock holds until every process that inherits it has ended.
    """
    make_folder(made.parent)
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    lock = os.open(made.with_name(f"{made.name}.lock"), flags, 0o600)
    try:
        while not try_lock(lock):
            on_wait()
            time.sleep(_RETRY_S)
        yield lock
    finally:
        os.close(lock)


def try_lock(descriptor: int, how: int = fcntl.LOCK_EX) -> bool:
    """Lock a file where it is free; tell whether it was."""
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def write_json(file: Path, document: object) -> None:
    """Replace a file atomically; only the user can read it.

    Raises:
        UseCaseError: It cannot be written.
    """
    make_folder(file.parent)
    try:
        handle, name = mkstemp(dir=file.parent, prefix=f".{file.name}.")  # made 0600
        part = Path(name)
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(codec.encode(document))
            part.replace(file)
        except BaseException:
            part.unlink()
            raise
    except OSError as error:
        raise make_cache_write_error(file.parent, error) from error


def read_json(file: Path, as_type: type[T]) -> T | None:
    """Read a file of the cache, ``None`` where it is missing, damaged or none of ours."""
    try:
        return codec.decode(file.read_bytes(), as_type, source=str(file))
    except (OSError, InvalidDocumentError):
        return None


def make_cache_write_error(folder: Path, error: OSError) -> UseCaseError:
    """Make the error of a cache that cannot be written."""
    reason = error.strerror or str(error)
    return UseCaseError(
        f"cannot write into the cache {folder}: {reason}: make room there, "
        "or set DDLPLAN_CACHE to a folder elsewhere"
    )
