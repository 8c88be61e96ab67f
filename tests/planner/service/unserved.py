"""Service that is asked without a server before it: by any client, at any of its addresses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

from planner.service.app import make_service
from planner.service.guard.addresses import Addresses
from planner.service.guard.credentials import Credentials
from planner.service.requests.settings import Bounds, ServiceSettings


def unserved(
    folder: Path, addresses: Addresses, bounds: Bounds | None = None
) -> Callable[[str, Mapping[str, str]], int]:
    """Make a service; give what asks it for its plans and gives the status of the answer.

    Args:
        folder: Of the database.
        addresses: Of the service.
        bounds: Of requests.
    """
    service = make_service(
        ServiceSettings(db=str(folder / "planner.db")),
        addresses=addresses,
        credentials=Credentials("right" * 8),
        cookie="ddlplan-1",
        bounds=bounds or Bounds(),
        on_used=lambda: None,
    )

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
