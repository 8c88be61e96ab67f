"""Figures of a study: what they compare."""

from __future__ import annotations

from dataclasses import replace

import pytest
from worth_cases import ALL_CORES, BEST, trial

from planner.report.figures.study_figures import strategies_figure
from planner.trials.result import Role


@pytest.mark.parametrize("role", [Role.LOOK, Role.SHARE, Role.OWN_BATCH])
def test_strategies_are_compared_by_plans_that_may_be_chosen(role):
    """A look at a small batch, or at a large one's share, was held against whole batches."""
    other = trial(2, replace(ALL_CORES, node_batch=8), 90.0)
    other = replace(other, result=replace(other.result, role=role))
    figure = strategies_figure([trial(0, ALL_CORES, 20.0), trial(1, BEST, 40.0), other])
    assert [row[0] for row in figure.rows] == [BEST.strategy, ALL_CORES.strategy]
    assert not any("90" in row[2] for row in figure.rows)
