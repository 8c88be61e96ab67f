"""Documents: answers of the API in the form that ``--json`` has, and its errors."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from planner.report.output import SCHEMA_VERSION
from probes import codec

CHALLENGE = {b"www-authenticate": b'Bearer realm="ddlplan"'}
"""Header of an answer to whoever has no token."""


class RequestError(Exception):
    """A request that is answered with an error.

    Attributes:
        status: As HTTP has it.
        message: One line for the user, without internals.
        code: Exit code that a command would have.
        kind: Word that scripts go by.
        headers: More headers of the answer.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: int = 2,
        kind: str | None = None,
        headers: Mapping[bytes, bytes] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.kind = kind or _KINDS.get(status, "refused")
        self.headers = dict(headers or {})


_KINDS = {
    400: "bad_request",
    401: "no_token",
    403: "forbidden",
    404: "not_found",
    405: "method",
    408: "timeout",
    409: "conflict",
    413: "too_large",
    414: "url_too_long",
    415: "content_type",
    421: "unknown_host",
    429: "too_many",
    431: "headers_too_large",
    500: "bug",
    503: "busy",
    505: "http_version",
}


def data_document(
    command: str,
    data: object,
    *,
    warnings: Sequence[str] = (),
    next_page: str | None = None,
    is_list: bool = False,
) -> bytes:
    """Give the document of an answer; that of a list says where its next part is, if any."""
    document: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "command": command,
        "warnings": list(warnings),
        "data": codec.to_builtins(data, null_for_nan=True),
    }
    if is_list:
        document["next"] = next_page
    return _dump(document)


def error_document(command: str, refusal: RequestError) -> bytes:
    """Give the document of an error."""
    error = {"code": refusal.code, "kind": refusal.kind, "message": refusal.message}
    return _dump(
        {"schema_version": SCHEMA_VERSION, "command": command, "warnings": [], "error": error}
    )


def _dump(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, allow_nan=False, separators=(",", ":")).encode() + b"\n"
