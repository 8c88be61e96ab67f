"""Guarded route: a route with what the guard lets through to it."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.routing import Match, Route
from starlette.types import ASGIApp, Scope

JSON = "application/json"
FORM = "application/x-www-form-urlencoded"


class GuardedRoute(Route):
    """A route of the service. What has no such route is refused.

    Args:
        path: With ``{id:int}`` and the like in it.
        endpoint: An ASGI application.
        methods: That it answers; HEAD is among them where it is named.
        content_types: That the body of a POST may have.
        is_action: Whether it changes something, so that ``--allow-actions`` is needed.
        is_open: Whether it is there for people who have not signed in yet.
        body_bytes: Largest body; ``None`` for that of the bounds.
        command: Word for documents of errors.
    """

    def __init__(
        self,
        path: str,
        endpoint: ASGIApp,
        *,
        methods: Sequence[str] = ("GET", "HEAD"),
        content_types: Sequence[str] = (JSON,),
        is_action: bool = False,
        is_open: bool = False,
        body_bytes: int | None = None,
        command: str = "serve",
    ) -> None:
        super().__init__(path, endpoint, methods=list(methods), include_in_schema=False)
        self.app = endpoint  # Starlette takes a method for one that maps a request to a response
        self.allowed = tuple(methods)
        self.content_types = tuple(content_types)
        self.is_action = is_action
        self.is_open = is_open
        self.body_bytes = body_bytes
        self.command = command


def find_routes(routes: Sequence[GuardedRoute], scope: Scope) -> list[GuardedRoute]:
    """Give the routes whose path a request names, whatever its method."""
    return [route for route in routes if route.matches(scope)[0] is not Match.NONE]
