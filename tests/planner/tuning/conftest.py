"""A machine whose times are recorded."""

from __future__ import annotations

import pytest

from tests.planner.tuning.recorded_search import Recorded


@pytest.fixture
def recorded() -> Recorded:
    return Recorded()
