"""A machine whose times are recorded, and a store that takes no time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from planner.store import Store
from tests.planner.tuning.recorded_search import Recorded, Searched


@pytest.fixture
def recorded() -> Recorded:
    return Recorded()


@pytest.fixture(scope="session")
def memory_folder() -> Iterator[Path]:
    """A folder in memory, where there is such a one: imagined searches would wait for a disk."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with TemporaryDirectory(prefix="ddlplan-test-", dir=memory) as folder:
        yield Path(folder)


@pytest.fixture
def new_folder(memory_folder: Path) -> Iterator[Path]:
    with TemporaryDirectory(dir=memory_folder) as folder:
        yield Path(folder)


@pytest.fixture
def store(new_folder: Path) -> Iterator[Store]:
    with Store.open(str(new_folder / "planner.db")) as opened:
        yield opened


@pytest.fixture(scope="session")
def usual(memory_folder: Path) -> Searched:
    """The usual search on the recorded machine."""
    return Searched.of(memory_folder / "usual.db", Recorded())


@pytest.fixture
def usual_store(usual: Searched, new_folder: Path) -> Iterator[Store]:
    """What the usual search has stored, to go on from."""
    with usual.open_copy(new_folder) as store:
        yield store
