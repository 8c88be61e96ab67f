"""Place of a database by ``--db``: a server, or a file, which is checked and created private."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from pathlib import Path

from launch.system.durable_files import explain_absence, sync_folder
from planner.errors import StoreUnwritableError, StoreUrlError, reason_of
from probes.storage.file_system import MOUNTS, find_file_system

_SQLITE = "sqlite:///"
_SERVERS = ("postgresql", "postgresql+psycopg", "postgres")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def is_postgres(url: str) -> bool:
    """Tell whether ``--db`` names a database on a PostgreSQL server."""
    return url.partition("://")[0] in _SERVERS and "://" in url


def database_path(url: str) -> Path:
    """Parse ``--db``: a plain path, or SQLAlchemy's form ``sqlite:///path``.

    Raises:
        StoreUrlError: It names no file.
    """
    path = url
    if scheme := _SCHEME.match(url):
        is_server = scheme[0].removesuffix(":").lower() in _SERVERS  # and a slash is left out
        if not url.startswith(_SQLITE) and ("//" in url or is_server):
            # Only the scheme is repeated: the rest may hold a password.
            raise StoreUrlError(
                f"database {scheme[0]}//...: use a path, {_SQLITE}path, or "
                "postgresql+psycopg://user@host/name"
            )
        path = url.removeprefix(_SQLITE)
    if not path or "\0" in path or path == ":memory:":
        raise StoreUrlError(f"database {path!r}: use the path of a file, such as planner.db")
    return Path(path)


def whole_name(url: str) -> str:
    """Give ``--db`` so that it names the same database in every folder of this machine.

    Raises:
        StoreUrlError: It names no database.
    """
    return url if is_postgres(url) else str(database_path(url).absolute())


def exists_as_file(path: Path) -> bool:
    """Return whether there is a file, without opening it: opening a pipe waits for a writer.

    Raises:
        StoreUnwritableError: The path is no regular file, or cannot be examined.
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        if path.is_symlink():
            raise StoreUnwritableError(
                f"database {path}: it is a link to a file that is missing: remove the link"
            ) from None
        return False
    except OSError as error:
        raise _unwritable(path, error) from error
    if stat.S_ISDIR(mode):
        raise StoreUnwritableError(f"database {path}: it is a directory: name a file")
    if not stat.S_ISREG(mode):
        raise StoreUnwritableError(f"database {path}: it is no regular file: name another")
    return True


def find_above(path: Path) -> Path | None:
    """Find a file of the same name in a folder above the present one; of several, the nearest.

    No folder above the home folder is looked into, nor is one for a file that is named elsewhere.
    """
    if path.name != str(path):
        return None
    home: Path | None = None
    with contextlib.suppress(RuntimeError):  # of a user who has none
        home = Path.home().resolve()
    folder, way = Path.cwd(), Path()
    while folder not in (home, folder.parent):
        folder, way = folder.parent, ".." / way
        if not explain_absence(folder / path) and (folder / path).is_file():
            return way / path
    return None


def create_private(path: Path) -> bool:
    """Create an empty file that only its owner can read; return whether this call made it.

    SQLite itself would make it readable by everyone under the usual umask, and would use a file
    that another user puts there first. Its journals copy the file's permissions.

    Raises:
        StoreUnwritableError: The file cannot be made.
    """
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return False
    except OSError as error:
        check_folder(path)
        raise _unwritable(path, error) from error
    try:
        os.fchmod(descriptor, 0o600)  # the umask may have taken bits away
    finally:
        os.close(descriptor)
    sync_folder(path.parent)
    return True


def check_folder(path: Path) -> None:
    """Check that the folder of a database is there.

    Raises:
        StoreUnwritableError: It is not.
    """
    if not path.parent.exists():
        raise StoreUnwritableError(
            f"database {path}: the folder {path.parent} does not exist: make it first"
        )


def check_writable(path: Path) -> None:
    """Check that a database can be written or created, without doing either.

    Raises:
        StoreUnwritableError: It cannot be.
    """
    check_folder(path)
    # SQLite makes its journal beside the database.
    for place in (path.parent, path):
        if place.exists() and not os.access(place, os.W_OK):
            raise StoreUnwritableError(
                f"database {path}: {place.absolute()} cannot be written: "
                "choose another place with --db"
            )


def remove_if_empty(path: Path) -> None:
    """Remove a file that `create_private` made, if nothing was written to it."""
    try:
        if path.stat().st_size == 0:
            path.unlink()
    except OSError:
        return  # a file that could not be written can often not be removed either


def find_network_file_system(path: Path, mounts: Path = MOUNTS) -> str | None:
    """Give the type of the file system of a database, if other machines may write to it too.

    The database need not be there.
    """
    found = find_file_system(path.absolute().parent, mounts)
    return found.kind if found.is_network else None


def _unwritable(path: Path, error: OSError) -> StoreUnwritableError:
    reason = reason_of(error)
    return StoreUnwritableError(f"database {path}: {reason}: choose another place with --db")
