"""Fork servers that calls of the API share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext

import pytest

from launch.workers.fork_server_pool import ForkServerPool


@pytest.fixture(scope="module")
def shared_servers(servers: ForkServerPool) -> Iterator[ForkServerPool]:
    """Let calls have the fork servers of all tests: each would start its own, which loads torch."""
    with pytest.MonkeyPatch.context() as patch:
        for module in ("sweeps", "tuning", "use_cases"):
            patch.setattr(f"planner.api.{module}.ForkServerPool", lambda: nullcontext(servers))
        yield servers
