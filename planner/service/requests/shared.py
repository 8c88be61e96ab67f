"""Shared answers: what many ask for at the same time is made once.

A change brings everybody who looks at a page to ask for it again. An answer that was begun after
the last change serves all of them, and costs the machine's search what one costs.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from planner.service.requests.answers import Answer, Receive, Scope, Send
from planner.service.requests.calls import Call, read_call
from planner.service.requests.work import WorkerThreads

_MOST_KEPT = 32
_MOST_AGE_S = 2.0
"""Ages, logs and states of processes change without a change of the database."""


@dataclass(frozen=True, slots=True)
class _Begun:
    at_s: float
    answer: asyncio.Future[Answer]


class SharedAnswers:
    """Answers by their addresses, each for a moment.

    Args:
        threads: Where they are made.
        last_change_s: Gives when a change was last seen, on the clock of `time.monotonic`; ``None``
            where nobody looks for changes, so that an answer may be out of date at once.
    """

    def __init__(self, threads: WorkerThreads, last_change_s: Callable[[], float | None]) -> None:
        self._threads = threads
        self._last_change_s = last_change_s
        self._begun: dict[tuple[str, bytes], _Begun] = {}

    async def get(self, address: tuple[str, bytes], make: Callable[[], Answer]) -> Answer:
        """Give the answer of an address, one that others wait for too where that is as good."""
        now_s, changed_s = time.monotonic(), self._last_change_s()
        known = self._begun.get(address)
        if (
            known is not None
            and changed_s is not None
            and changed_s < known.at_s
            and now_s < known.at_s + _MOST_AGE_S
        ):
            return await asyncio.shield(known.answer)
        answer = asyncio.ensure_future(self._threads.run(make))
        self._begun.pop(address, None)
        self._begun[address] = _Begun(now_s, answer)
        while len(self._begun) > _MOST_KEPT:
            del self._begun[next(iter(self._begun))]
        try:
            return await asyncio.shield(answer)
        except Exception:
            self._begun.pop(address, None)
            raise


class SharedAnswering:
    """ASGI application that answers by a function, as `Answering` does, for many at once.

    Args:
        answer: Gives the answer, or raises `RequestError`. It goes by the address alone.
        shared: Answers of all such applications.
    """

    def __init__(self, answer: Callable[[Call], Answer], shared: SharedAnswers) -> None:
        self._answer = answer
        self._shared = shared

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        call = await read_call(scope, receive)
        address = (scope["path"], scope["query_string"])
        answer = await self._shared.get(address, lambda: self._answer(call))
        await answer.send(send)
