"""Empty databases of either kind, and one in a file with a trial in it."""

from __future__ import annotations

import pytest
from sample_plan import NOON
from store_cases import write_trials

from planner.store import Store


@pytest.fixture
def store(database):
    """A store whose clock stands still."""
    with Store.open(database.url, now=lambda: NOON) as opened:
        yield opened


@pytest.fixture
def path(tmp_path):
    return tmp_path / "planner.db"


@pytest.fixture
def filled(path):
    """A database with one trial in it."""
    write_trials(path)
    return path
