"""Shared answers: what many ask for at the same time is made once, and not too often.

A change brings everybody who looks at a page to ask for it again. An answer that was begun after
the last change serves all of them. What scripts of pages ask for waits until the answers before it
are paid for, so that those who watch a search do not slow it down.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from planner.service.requests.answers import Answer, Receive, Scope, Send
from planner.service.requests.calls import Call, read_call
from planner.service.requests.work import WorkerThreads

_REFRESH = b"x-ddlplan-refresh"
"""Header of a request for a page that is shown already."""

_MOST_KEPT = 32
_MOST_AGE_S = 2.0
"""Ages, logs and states of processes change without a change of the database."""

_MOST_WAIT_S = 12.0

Address = tuple[str, bytes]
"""Path and query."""


@dataclass(slots=True)
class _Begun:
    """An answer on its way, or there."""

    answer: asyncio.Future[Answer]
    at_s: float | None = None
    """When it was begun; ``None`` before, when it will tell of all changes until now."""


@dataclass(slots=True)
class SharedAnswers:
    """Answers by their addresses, each for a moment.

    Args:
        threads: Where they are made.
        last_change_s: Gives when a change was last seen, on the clock of `time.monotonic`; ``None``
            where nobody looks for changes, so that an answer may be out of date at once.
        cores: Processor time that answers to refreshes may take on average, in cores.
    """

    threads: WorkerThreads
    last_change_s: Callable[[], float | None]
    cores: float
    _begun: dict[Address, _Begun] = field(default_factory=dict)
    _paid_s: float = 0.0

    async def get(
        self, address: Address, make: Callable[[], Answer], *, is_refresh: bool = False
    ) -> Answer:
        """Give the answer of an address, one that others wait for too where that is as good.

        The answer goes by its address alone. A refresh may wait.
        """
        known = self._begun.get(address)
        if known is None or not self._is_good(known, is_refresh=is_refresh):
            known = self._begin(address, make, is_refresh=is_refresh)
        # One who does not wait any longer must not end it for the others.
        return await asyncio.shield(known.answer)

    def _is_good(self, known: _Begun, *, is_refresh: bool) -> bool:
        if known.at_s is None:
            return is_refresh
        changed_s = self.last_change_s()
        is_young = time.monotonic() < known.at_s + _MOST_AGE_S
        return is_young and changed_s is not None and changed_s < known.at_s

    def _begin(self, address: Address, make: Callable[[], Answer], *, is_refresh: bool) -> _Begun:
        async def work() -> Answer:
            if is_refresh:
                await asyncio.sleep(min(_MOST_WAIT_S, self._paid_s - time.monotonic()))
                begun.at_s = time.monotonic()
            answer, spent_s = await self.threads.run(lambda: _timed(make))
            if is_refresh:
                self._paid_s = max(self._paid_s, time.monotonic()) + spent_s / self.cores
            return answer

        at_s = None if is_refresh else time.monotonic()
        begun = _Begun(asyncio.ensure_future(work()), at_s)  # work has not run yet
        begun.answer.add_done_callback(lambda done: self._forget_failed(address, begun, done))
        self._begun.pop(address, None)
        self._begun[address] = begun
        while len(self._begun) > _MOST_KEPT:
            del self._begun[next(iter(self._begun))]
        return begun

    def _forget_failed(self, address: Address, begun: _Begun, done: asyncio.Future[Answer]) -> None:
        has_failed = done.cancelled() or done.exception() is not None
        if has_failed and self._begun.get(address) is begun:
            del self._begun[address]


class SharedAnswering:
    """ASGI application that answers by a function, as `Answering` does, for many at once.

    The function goes by the address alone.
    """

    def __init__(self, answer: Callable[[Call], Answer], shared: SharedAnswers) -> None:
        self._answer = answer
        self._shared = shared

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        call = await read_call(scope, receive)
        address = (scope["path"], scope["query_string"])
        is_refresh = any(name == _REFRESH for name, _ in scope["headers"])
        answer = await self._shared.get(address, lambda: self._answer(call), is_refresh=is_refresh)
        await answer.send(send)


def _timed(make: Callable[[], Answer]) -> tuple[Answer, float]:
    """Give an answer, and the processor time that it took."""
    began_s = time.thread_time()
    answer = make()
    return answer, time.thread_time() - began_s
