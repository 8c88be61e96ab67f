"""Updates that are left to the next step: made in time, with nothing else computed."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import late_cases
import pytest
import torch
from jobs_of_nodes import Spec, train_all, want_pairs
from one_process import TOLERANCE, largest_error, trained_alone

from launch.plan import Plan

STEPS = 20
PAIR = Plan(strategy="processes", processes=2, replicas=2, node_batch=5)
PARTS = replace(PAIR, micro_batches=2, node_batch=4)
THREADS = Plan(strategy="threads", threads_per_process=2, replicas=2, node_batch=3)
slow = partial(Spec, file=Path(late_cases.__file__), has_slow_sums=True)
# The ways in which a use may be unseen are asked in one process: see test_recorded_uses.py.
LATE = {
    "processes": slow("Late", [PAIR, PARTS]),
    "threads": slow("Late", [PAIR, THREADS]),
    "unseen": slow("Unseen", [PAIR, PARTS]),
}
want_pairs("late", LATE)


def without_count(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: value for name, value in weights.items() if name != "changes"}


@pytest.mark.parametrize("name", LATE)
def test_weights_equal_those_of_one_process_whenever_they_were_updated(name, trained_pair):
    alone = trained_alone(getattr(late_cases, LATE[name].case)(), LATE[name].global_batch)
    ours = without_count(trained_pair("late", name).weights)
    assert largest_error(ours, without_count(alone)) < TOLERANCE


@pytest.mark.parametrize("name", ["processes", "threads"])
def test_the_next_step_begins_while_later_layers_are_not_updated(name, trained_pair):
    assert trained_pair("late", name).weights["changes"] > STEPS / 2


@pytest.mark.long
def test_step_that_uses_a_parameter_before_its_update_fails(tmp_path):
    spec = slow("Strays", [PAIR, PARTS])
    with pytest.raises(AssertionError, match="is used before its update"):
        train_all({"strays": spec}, tmp_path)


@pytest.mark.long
def test_worker_that_keeps_its_node_from_updating_is_named_and_not_the_one_that_waits(tmp_path):
    plans = [PAIR, Plan(strategy="sequential", node_batch=4)]
    spec = slow("HangsBeforeUse", plans, settings={"hang_timeout_s": 8.0})
    culprit = r"JobFailed\(node='node0', worker=1, .*message='hangs"
    with pytest.raises(AssertionError, match=culprit):
        train_all({"hangs": spec}, tmp_path)


def test_no_update_is_late_where_a_parameter_is_used_unseen(trained_pair):
    assert trained_pair("late", "unseen").weights["changes"] == 0
