"""A database in a file, empty and with a trial in it."""

from __future__ import annotations

import pytest
from store_cases import STUDY, trial

from planner.store import Store


@pytest.fixture
def path(tmp_path):
    return tmp_path / "planner.db"


@pytest.fixture
def filled(path):
    """A database with one trial in it."""
    with Store.open(str(path)) as store:
        store.studies.add_trial(store.studies.get_or_create(STUDY), trial(0))
    return path
