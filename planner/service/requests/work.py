"""Work: what blocks, such as reading the database, in a few threads beside the event loop."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

from planner.service.requests.documents import RequestError

T = TypeVar("T")


class WorkerThreads:
    """A few threads, each of which does one thing at a time.

    They end with the program, in the middle of what they do: what they write is a transaction.
    """

    def __init__(self, threads: int, *, most_waiting: int) -> None:
        self._tasks: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._most_waiting = most_waiting
        for number in range(threads):
            threading.Thread(target=self._run, name=f"worker-{number}", daemon=True).start()

    async def run(self, call: Callable[[], T]) -> T:
        """Call a function in a thread and give what it gives, or raise what it raises.

        Raises:
            RequestError: Too much waits already.
        """
        if self._tasks.qsize() >= self._most_waiting:
            raise RequestError(
                503, "too many requests at once: try again", headers={b"retry-after": b"2"}
            )
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def work() -> None:
            if future.cancelled():
                return
            try:
                found = call()
            except Exception as error:  # noqa: BLE001 - it is raised where it is waited for
                finish: Callable[[], None] = partial(future.set_exception, error)
            else:
                finish = partial(future.set_result, found)

            def finish_if_awaited() -> None:
                if not future.done():
                    finish()

            with suppress(RuntimeError):  # the server has ended
                loop.call_soon_threadsafe(finish_if_awaited)

        self._tasks.put(work)
        return await future

    def _run(self) -> None:
        while True:
            self._tasks.get()()
