"""Which JSON document does a command print?"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

SCHEMA_VERSION = 1


def envelope(command: str, data: object, warnings: Sequence[str] = ()) -> str:
    """Give the one JSON document of a command that succeeded."""
    return _document(command, warnings, {"data": data})


def error_envelope(
    command: str,
    code: int,
    kind: str,
    message: str,
    warnings: Sequence[str] = (),
    *,
    data: object = None,
) -> str:
    """Give the one JSON document of a command that failed, with what it found out all the same."""
    known = {} if data is None else {"data": data}
    error = {"code": code, "kind": kind, "message": message}
    return _document(command, warnings, {**known, "error": error})


def _document(command: str, warnings: Sequence[str], content: Mapping[str, object]) -> str:
    head = {"schema_version": SCHEMA_VERSION, "command": command, "warnings": list(warnings)}
    # NaN and infinity are no JSON; what holds one is a bug, better seen here than by a script.
    return json.dumps({**head, **content}, indent=2, allow_nan=False) + "\n"
