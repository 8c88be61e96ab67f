"""Plans of two hosts, stored and found."""

from __future__ import annotations

import pytest
from sample_plan import SOFTWARE

from planner.jobs.making import find_plans
from tests.planner.jobs.host_plans import FAST, NODES, REMEDY, REQUEST, SLOW, plan


@pytest.fixture
def both(store):
    store.plans.save(plan(FAST, 80.0))
    store.plans.save(plan(SLOW, 20.0))
    return find_plans(store, REQUEST, NODES, SOFTWARE, remedy=REMEDY)
