"""Answers: what is sent back, whole."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any

HTML = b"text/html; charset=utf-8"

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer to a request."""

    status: int = 200
    body: bytes
    content_type: bytes = b"application/json"
    headers: Mapping[bytes, bytes] = field(default_factory=dict)

    async def send(self, send: Send) -> None:
        headers = {
            b"content-type": self.content_type,
            b"content-length": str(len(self.body)).encode(),
            **self.headers,
        }
        pairs = list(headers.items())
        await send({"type": "http.response.start", "status": self.status, "headers": pairs})
        await send({"type": "http.response.body", "body": self.body})
