"""Calls: a request as the functions that answer it see it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import parse_qs

from planner.service.requests.answers import Answer, Receive, Scope, Send
from planner.service.requests.documents import RequestError
from planner.service.requests.work import WorkerThreads

_MAX_ID = 2**53
_MOST_FIELDS = 100
_MOST_KEY = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What is asked for, after the guard has let it through."""

    path: str
    numbers: Mapping[str, int] = field(default_factory=dict)
    """Of the address: ``id`` of ``/plans/{id}``."""

    names: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, Sequence[str]] = field(default_factory=dict)
    body: bytes = b""
    key: str | None = None
    """By which the request names itself, so that it is done once: ``Idempotency-Key``."""


class Answering:
    """ASGI application that answers by a function.

    Args:
        answer: Gives the answer, or raises `RequestError`.
        threads: Where it is called; ``None`` where it does not block.
    """

    def __init__(self, answer: Callable[[Call], Answer], threads: WorkerThreads | None) -> None:
        self._answer = answer
        self._threads = threads

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        call = await read_call(scope, receive)
        if self._threads is None:
            answer = self._answer(call)
        else:
            answer = await self._threads.run(lambda: self._answer(call))
        await answer.send(send)


async def read_call(scope: Scope, receive: Receive) -> Call:
    """Read what is asked for.

    Raises:
        RequestError: It is more than can be.
    """
    given = scope["path_params"]
    numbers = {name: value for name, value in given.items() if isinstance(value, int)}
    if any(number > _MAX_ID for number in numbers.values()):
        raise RequestError(404, "there is nothing at this address")
    try:
        query = parse_qs(
            scope["query_string"].decode("latin-1"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=_MOST_FIELDS,
        )
    except ValueError:
        raise RequestError(400, f"the query has more than {_MOST_FIELDS} fields") from None
    body = (await receive())["body"] if scope["method"] == "POST" else b""
    key = dict(scope["headers"]).get(b"idempotency-key", b"").decode("latin-1")
    if len(key) > _MOST_KEY:
        raise RequestError(400, f"Idempotency-Key: expected at most {_MOST_KEY} characters")
    return Call(
        path=scope["path"],
        numbers=numbers,
        names={name: value for name, value in given.items() if isinstance(value, str)},
        query=query,
        body=body,
        key=key or None,
    )
