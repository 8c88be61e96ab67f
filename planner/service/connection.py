"""Connection: one of HTTP, with an end to clients that send or read too slowly.

uvicorn waits for ever for the rest of a request's headers, and for a client that does not read what
is sent to it.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from planner.service.requests.settings import Bounds


class BoundedConnection(H11Protocol):
    """A connection that can say since when it waits for its client."""

    bounds = Bounds()
    _waits_since = 0.0
    _writes_since: float | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._waits_since = self.loop.time()
        if len(self.connections) > self.bounds.connections:
            self._make_room()

    def on_response_complete(self) -> None:
        self._waits_since = self.loop.time()
        super().on_response_complete()

    def pause_writing(self) -> None:
        self._writes_since = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        self._writes_since = None
        super().resume_writing()

    @property
    def is_idle(self) -> bool:
        """Whether no request is being answered: its client has yet to send one, whole."""
        return self.cycle is None or self.cycle.response_complete

    def end_if_slow(self) -> None:
        """End it if its client takes too long."""
        now = self.loop.time()
        if (self._writes_since is not None and now - self._writes_since > self.bounds.write_s) or (
            self.is_idle and now - self._waits_since > self.bounds.head_s
        ):
            self.transport.abort()

    def _make_room(self) -> None:
        """End the connection that has waited longest for a request, perhaps this one."""
        idle = [one for one in self.connections if isinstance(one, BoundedConnection)]
        idle = [one for one in idle if one.is_idle and not one.transport.is_closing()]
        oldest = min(idle, key=lambda one: one._waits_since, default=self)
        oldest.transport.abort()


def connection_class(bounds: Bounds) -> type[BoundedConnection]:
    """Give a class of connections with these bounds, as uvicorn wants it."""
    values: dict[str, Any] = {"bounds": bounds}
    return type("BoundedConnection", (BoundedConnection,), values)
