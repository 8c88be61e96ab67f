"""Repeats: a request that names itself by a key starts one job, however often it is sent.

https://datatracker.ietf.org/doc/draft-ietf-httpapi-idempotency-key-header/ says how clients do it.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from launch.system.durable_files import create_private, explain_os_error, make_folders
from launch.system.run_directory import append_line
from planner.errors import ConflictError, RunDirectoryError
from planner.supervision.job_folder import JOBS

_KEYS = JOBS / ".keys"
"""A file for each key, below the working folder; a server that is started again knows them."""

_KEPT_S = 24 * 3600.0
"""A key is known for a day."""


def start_once(
    key: str | None, said: Mapping[str, Any], start: Callable[[], int], *, db: str
) -> int:
    """Start a job, unless a request of this key did; give its number.

    The file is made before the job and without a number, so that a server that is killed in between
    leaves a key that starts nothing any more: one job too few can be seen and mended, one too many
    runs.

    A request without a key always starts one. ``said`` is what it says, other than its key.

    Raises:
        ConflictError: The key is one of another request, or of one that is not answered yet.
        RunDirectoryError: The key cannot be stored.
    """
    if key is None:
        return start()
    digest = hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()
    file = _KEYS / hashlib.sha256(f"{db}\0{key}".encode()).hexdigest()
    with _explained():
        make_folders(_KEYS, mode=0o700)
        _remove_old()
        try:
            create_private(file).close()
        except FileExistsError:
            return _read(file, digest)
    try:
        with _explained():
            append_line(file, digest.encode())
        number = start()
    except Exception:
        file.unlink(missing_ok=True)  # there is no job: the next request may try
        raise
    with suppress(OSError):  # there is a job, whatever a later request will hear of it
        append_line(file, f" {number}".encode())
    return number


@contextmanager
def _explained() -> Iterator[None]:
    """Turn errors of the files of keys into one that says what they are for."""
    try:
        yield
    except OSError as error:
        raise RunDirectoryError(
            f"folder {_KEYS} for the keys of requests: {explain_os_error(error)}: make room there"
        ) from error


def _remove_old() -> None:
    oldest = time.time() - _KEPT_S
    for file in _KEYS.iterdir():
        with suppress(FileNotFoundError):  # another request may remove it too
            if file.stat().st_mtime < oldest:
                file.unlink()


def _read(file: Path, digest: str) -> int:
    content = ""
    with suppress(FileNotFoundError):  # the request that had it first has just failed
        content = file.read_text()
    before, _, number = content.partition(" ")
    if before and before != digest:
        raise ConflictError("Idempotency-Key: another request had this one: take a new one")
    if not number:
        raise ConflictError(
            "Idempotency-Key: the request that had it first is not answered, or its server was "
            "killed meanwhile: see /api/v1/jobs, then take a new one"
        )
    return int(number)
