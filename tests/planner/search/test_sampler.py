"""The sampler in a study of Optuna's own, without the search around it."""

from __future__ import annotations

import numpy as np
import optuna
import pytest
from imagined_machines import CASE, Machine, node_of

from planner.search.effects import Effects, TermColumns
from planner.search.plan_pool import PlanPool, expected_improvement
from planner.search.prior import Prior
from planner.search.sampler import PlanSampler
from planner.search.space import PlanSpace


def test_study_optimizes_with_it_as_with_any_sampler():
    space = PlanSpace(("threads", "processes"), CASE, node_of(8))
    machine = Machine(parts=2, fixed=0.1, retain=0.88)
    optuna.logging.set_verbosity(optuna.logging.WARNING)

    def find(sampler: optuna.samplers.BaseSampler) -> float:
        study = optuna.create_study(sampler=sampler)
        study.optimize(lambda trial: machine.sample_s(space.draw(trial)), n_trials=15)
        return study.best_value

    drawn = [find(optuna.samplers.RandomSampler(seed=seed)) for seed in range(5)]
    assert find(PlanSampler(space)) < 0.95 * min(drawn)


def test_what_must_not_be_tried_is_not_the_best_that_is_expected():
    """The story: looks were held against plans that are too large for the memory."""
    space = PlanSpace(("threads",), CASE, node_of(8))
    effects = Effects(TermColumns(Prior(CASE, node_of(8), frozenset()).belief), [])
    expected = {}
    for chance in (0.0, 1.0):
        pool = PlanPool(effects, 100.0, lambda _plan, _time_s: 1.0, lambda _, c=chance: c, 1)
        pool.add(space.guesses)
        expected[chance] = pool.expected_log_s()
    assert expected[0.0] == 100.0
    assert expected[1.0] < 100.0


def test_expected_improvement_is_the_mean_of_what_is_gained():
    generator = np.random.default_rng(0)
    for lead, deviation in ((-0.05, 0.1), (0.02, 0.01), (0.0, 0.05)):
        drawn = np.maximum(0, lead + deviation * generator.normal(size=200_000))
        (gain,) = expected_improvement(np.array([lead]), np.array([deviation]))
        assert gain == pytest.approx(drawn.mean(), rel=0.02)
