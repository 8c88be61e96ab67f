"""Fork servers that calls of the API share, and where they find no database yet."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from launch.workers.fork_server_pool import ForkServerPool


@pytest.fixture(scope="module")
def shared_servers(servers: ForkServerPool) -> Iterator[ForkServerPool]:
    """Let calls have the fork servers of all tests: each would start its own, which loads torch."""
    with pytest.MonkeyPatch.context() as patch:
        for module in ("sweeps", "tuning", "use_cases"):
            patch.setattr(f"planner.api.{module}.ForkServerPool", lambda: nullcontext(servers))
        yield servers


@pytest.fixture
def db(tmp_path: Path) -> str:
    """A database that is still to be made."""
    return str(tmp_path / "planner.db")
