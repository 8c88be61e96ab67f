"""Connection: one of HTTP, with an end to clients that send or read too slowly.

uvicorn waits for ever for the rest of a request's headers, and for a client that does not read what
is sent to it.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from planner.service.requests.settings import Bounds


class BoundedConnection(H11Protocol):
    """A connection that can say since when it waits for its client."""

    bounds = Bounds()
    _waits_since = 0.0
    _unread = 0
    """Bytes that its client had not taken yet when it last took some."""

    _unread_since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._waits_since = self.loop.time()
        if len(self.connections) > self.bounds.connections:
            self._make_room()

    def on_response_complete(self) -> None:
        self._waits_since = self.loop.time()
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.abort()  # an answer is under way, or was given: there is no second one
        else:
            super().send_400_response(msg)

    @property
    def is_waiting(self) -> bool:
        """Whether its client has yet to send a request, whole, or to read an answer."""
        is_unread = self.transport.get_write_buffer_size() > 0
        is_asked = self.cycle is not None and not self.cycle.more_body
        return is_unread or not is_asked or self.cycle.response_complete

    def end_if_slow(self) -> None:
        """End it if its client takes too long to send a request, or to read an answer."""
        now, unread = self.loop.time(), self.transport.get_write_buffer_size()
        if unread == 0 or unread <= self._unread - self.bounds.read_bytes or not self._unread:
            self._unread, self._unread_since = unread, now
        is_between = self.cycle is None or self.cycle.response_complete
        if (unread and now - self._unread_since > self.bounds.write_s) or (
            is_between and not unread and now - self._waits_since > self.bounds.head_s
        ):
            self.transport.abort()

    def _make_room(self) -> None:
        """End the connection that has waited longest for its client, perhaps this one."""
        found = [one for one in self.connections if isinstance(one, BoundedConnection)]
        found = [one for one in found if one.is_waiting and not one.transport.is_closing()]
        oldest = min(found, key=lambda one: one._waits_since, default=self)
        oldest.transport.abort()


def connection_class(bounds: Bounds) -> type[BoundedConnection]:
    """Give a class of connections with these bounds, as uvicorn wants it."""
    values: dict[str, Any] = {"bounds": bounds}
    return type("BoundedConnection", (BoundedConnection,), values)
