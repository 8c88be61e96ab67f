"""Documents: answers of the API in the form that ``--json`` has, and its errors."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from planner.report.output import document_head
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
    command: str, data: object, *, warnings: Sequence[str], next_page: str | None, is_list: bool
) -> bytes:
    """Give the document of an answer; that of a list says where its next part is, if any."""
    more = {"next": next_page} if is_list else {}
    shown = codec.to_builtins(data, null_for_nan=True)
    return _dump({**document_head(command, warnings), "data": shown, **more})


def error_document(command: str, refusal: RequestError) -> bytes:
    """Give the document of an error."""
    error = {"code": refusal.code, "kind": refusal.kind, "message": refusal.message}
    return _dump({**document_head(command, ()), "error": error})


def _dump(document: Mapping[str, object]) -> bytes:
    return json.dumps(document, allow_nan=False, separators=(",", ":")).encode() + b"\n"
