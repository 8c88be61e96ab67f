"""Events: what changes in the database, sent to every browser and script that follows.

One poller reads the log for all, while there is somebody who follows. It keeps the latest events; a
reader has a place among them and no queue of its own, so that one who reads slowly costs nothing
and learns that it has missed some.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import Sequence

from planner.api.changes import ChangeBatch, Follower
from planner.errors import PlannerError
from planner.plans.stored_plan import iso_utc
from planner.quantities import printable
from planner.records.event_record import EventRecord
from planner.service.requests.answers import Message, Receive, Scope, Send
from planner.service.requests.documents import RequestError
from planner.service.requests.settings import Bounds
from planner.service.requests.terminal import tell_terminal
from planner.service.requests.work import WorkerThreads

_MOST_KEPT = 2000
_RETRY_MS = 2000


class EventStreams:
    """Sends the events of the database to every open stream."""

    def __init__(self, follower: Follower, threads: WorkerThreads, bounds: Bounds) -> None:
        self._follower = follower
        self._threads = threads
        self._bounds = bounds
        self._kept: deque[EventRecord] = deque(maxlen=_MOST_KEPT)
        self._newest: int | None = None
        self._changed_s = 0.0
        self._changed = asyncio.Event()
        self._readers = 0
        self._is_told = False
        self._poller: asyncio.Task[None] | None = None
        self._has_ended = False
        self._beginning = asyncio.Lock()

    @property
    def last_change_s(self) -> float | None:
        """When a change was last seen, by `time.monotonic`; ``None`` while nobody follows."""
        return None if self._poller is None else self._changed_s

    def end(self) -> None:
        """End all streams, because the server ends."""
        self._has_ended = True
        self._changed.set()
        if self._poller is not None:
            self._poller.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request with a stream, until the client or the server ends it.

        Raises:
            RequestError: Too many follow already, or the place to begin at is no number.
        """
        place = _read_place(scope)
        if self._readers >= self._bounds.readers:
            raise RequestError(
                503, "too many follow the events already", headers={b"retry-after": b"5"}
            )
        self._readers += 1
        try:
            async with self._beginning:
                if self._poller is None:
                    self._begin(await self._read_log(None))
            gone = asyncio.ensure_future(_wait_until_gone(receive))
            try:
                await self._send_all(place, gone, send)
            finally:
                gone.cancel()
        finally:
            self._readers -= 1
            if self._readers == 0 and self._poller is not None:
                self._poller.cancel()
                self._poller = None

    async def _read_log(self, after: int | None) -> ChangeBatch:
        try:
            return await self._threads.run(lambda: self._follower.read(after))
        except PlannerError as error:
            raise RequestError(503, "the database cannot be used now") from error

    def _begin(self, batch: ChangeBatch) -> None:
        self._kept.clear()
        self._newest = batch.newest
        self._changed_s = time.monotonic()
        self._poller = asyncio.ensure_future(self._poll())

    async def _poll(self) -> None:
        ends_at_s = 0.0
        while True:
            await asyncio.sleep(self._bounds.poll_s)
            try:
                if time.monotonic() >= ends_at_s:
                    ends_at_s = time.monotonic() + self._bounds.ends_s
                    await self._threads.run(self._follower.store_ends)
                known = self._newest or 0
                self._take(known, await self._read_log(known))
            except (PlannerError, RequestError):
                continue  # pages say what is the matter with the database
            except Exception as error:  # noqa: BLE001 - without the poller streams would say nothing
                self._tell(error)

    def _tell(self, error: Exception) -> None:
        if not self._is_told:
            why = printable(f"{type(error).__name__}: {error}")
            tell_terminal(f"error: pages may miss changes of the database: {why}\n")
        self._is_told = True

    def _take(self, known: int, batch: ChangeBatch) -> None:
        if batch.newest == known:
            return
        if not batch.is_whole or batch.newest < known:
            self._kept.clear()
            self._newest = batch.newest
        else:
            self._kept.extend(batch.events)
            self._newest = batch.events[-1].id
        self._changed_s = time.monotonic()
        self._changed.set()
        self._changed = asyncio.Event()

    async def _send_all(self, place: int | None, gone: asyncio.Future[None], send: Send) -> None:
        headers = [(b"content-type", b"text/event-stream"), (b"x-accel-buffering", b"no")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await _write(send, f"retry: {_RETRY_MS}\n\n")
        if place is None:
            place = self._newest or 0
        while not self._has_ended and not gone.done():
            changed = self._changed
            text, place = await self._catch_up(place)
            if text:
                await _write(send, text)
                continue
            waited = asyncio.ensure_future(changed.wait())
            done, _ = await asyncio.wait(
                (waited, gone),
                timeout=self._bounds.heartbeat_s,
                return_when=asyncio.FIRST_COMPLETED,
            )
            waited.cancel()
            if not done:
                await _write(send, ": still here\n\n")
        await send({"type": "http.response.body", "body": b""})

    async def _catch_up(self, place: int) -> tuple[str, int]:
        """Give what a reader at a place has missed, and its new place."""
        newest = self._newest or 0
        if place == newest:
            return "", place
        if place > newest and (await self._read_log(place)).newest >= place:
            return "", place  # of a page that was made since the last look
        events: Sequence[EventRecord] = ()  # beyond the newest: of a database that was replaced
        if place < newest and self._kept and self._kept[0].id <= place + 1:
            events = [one for one in self._kept if one.id > place]
        elif place < newest:
            batch = await self._read_log(place)
            events = batch.events if batch.is_whole else ()
        if not events:
            return _reset(newest), newest
        return "".join(map(_change, events)), events[-1].id


def _change(event: EventRecord) -> str:
    data = {
        "id": event.id,
        "created_at": iso_utc(event.created_at),
        "topic": str(event.topic),
        "subject_id": event.subject_id,
    }
    return f"id: {event.id}\nevent: change\ndata: {json.dumps(data)}\n\n"


def _reset(newest: int) -> str:
    return f"id: {newest}\nevent: reset\ndata: {json.dumps({'id': newest})}\n\n"


def _read_place(scope: Scope) -> int | None:
    """Give the number of the last event that a reader has seen."""
    said = dict(scope["headers"]).get(b"last-event-id", b"").decode("latin-1")
    if not said:
        query = scope["query_string"].decode("latin-1")
        said = next((p[6:] for p in query.split("&") if p.startswith("after=")), "")
    if not said:
        return None
    if not (said.isascii() and said.isdecimal() and len(said) <= 18):
        raise RequestError(400, "Last-Event-ID: expected the number of an event")
    return int(said)


async def _wait_until_gone(receive: Receive) -> None:
    while True:
        message: Message = await receive()
        if message["type"] == "http.disconnect":
            return


async def _write(send: Send, text: str) -> None:
    await send({"type": "http.response.body", "body": text.encode(), "more_body": True})
