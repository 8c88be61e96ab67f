"""A machine whose times are recorded, and a store that takes no time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from tempfile import TemporaryDirectory

import pytest

from planner.store import Store
from tests.planner.tuning.recorded_search import Recorded


@pytest.fixture
def recorded() -> Recorded:
    return Recorded()


@pytest.fixture
def store() -> Iterator[Store]:
    """A store in memory, where there is such a folder: imagined searches would wait for a disk."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with (
        TemporaryDirectory(prefix="ddlplan-test-", dir=memory) as folder,
        Store.open(f"{folder}/planner.db") as opened,
    ):
        yield opened
