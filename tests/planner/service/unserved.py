"""Service that is asked without a server before it: by any client, at any of its addresses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from planner.service.app import Service, make_service
from planner.service.guard.addresses import Addresses
from planner.service.guard.credentials import Credentials
from planner.service.requests.settings import Bounds, ServiceSettings


def make_unserved(
    folder: Path, addresses: Addresses, bounds: Bounds | None = None, **settings: Any
) -> Service:
    """Make a service with a database in a folder, for which no server listens."""
    return make_service(
        ServiceSettings(db=str(folder / "planner.db"), **settings),
        addresses=addresses,
        credentials=Credentials("right" * 8),
        cookie="ddlplan-1",
        bounds=bounds or Bounds(),
        on_used=lambda: None,
    )


def unserved(*made_of: Any) -> Callable[[str, Mapping[str, str]], int]:
    """Make one; give what asks it for its plans and gives the status of the answer."""
    service = make_unserved(*made_of)

    def ask(client: str, headers: Mapping[str, str]) -> int:
        sent = []

        async def send(message):
            sent.append(message)

        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": "GET",
            "path": "/api/v1/plans",
            "raw_path": b"/api/v1/plans",
            "query_string": b"",
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
            "client": (client, 1),
        }
        asyncio.run(service.app(scope, None, send))
        return sent[0]["status"]

    return ask
