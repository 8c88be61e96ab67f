"""What tests of late updates share: trainings of two nodes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from jobs_of_nodes import Trained, trained_when_asked
from slow_sum_jobs import HIDDEN, LATE, RANK


@pytest.fixture(scope="session")
def trained_late(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Trained]:
    """Give the outcome of a job by its name."""
    return trained_when_asked(LATE, tmp_path_factory.mktemp("late"), RANK)


@pytest.fixture(scope="session")
def trained_hidden(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Trained]:
    """Give the outcome of a job by its name."""
    return trained_when_asked(HIDDEN, tmp_path_factory.mktemp("hidden"), RANK)
