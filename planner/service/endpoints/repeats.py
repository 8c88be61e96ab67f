"""Repeats: a request that names itself by a key starts one job, however often it is sent.

https://datatracker.ietf.org/doc/draft-ietf-httpapi-idempotency-key-header/ says how clients do it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from launch.system.durable_files import make_folders
from planner.errors import ConflictError
from planner.supervision.job_folder import JOBS

_KEYS = JOBS / ".keys"
"""A file for each key, below the working folder; a server that is started again knows them."""


def start_once(
    key: str | None, said: Mapping[str, Any], start: Callable[[], int], *, db: str
) -> int:
    """Start a job, unless a request of this key did; give its number.

    The file is made before the job and without a number, so that a server that is killed in between
    leaves a key that starts nothing any more: one job too few can be seen and mended, one too many
    runs.

    Args:
        key: Of the request; ``None`` always starts one.
        said: What the request says, other than its key.
        start: Starts the job.
        db: Database of the job.

    Raises:
        ConflictError: The key is one of another request, or of one that is not answered yet.
    """
    if key is None:
        return start()
    digest = hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()
    file = _KEYS / hashlib.sha256(f"{db}\0{key}".encode()).hexdigest()
    make_folders(_KEYS, mode=0o700)
    try:
        descriptor = os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return _read(file, digest)
    with os.fdopen(descriptor, "w") as opened:
        opened.write(digest)
        opened.flush()
        try:
            number = start()
        except Exception:
            file.unlink(missing_ok=True)  # there is no job: the next request may try
            raise
        opened.write(f" {number}")
    return number


def _read(file: Path, digest: str) -> int:
    before, _, number = file.read_text().partition(" ")
    if before and before != digest:
        raise ConflictError("Idempotency-Key: another request had this one: take a new one")
    if not number:
        raise ConflictError(
            "Idempotency-Key: the request that had it first is not answered, or its server was "
            "killed meanwhile: see /api/v1/jobs, then take a new one"
        )
    return int(number)
