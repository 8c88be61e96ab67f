"""Updates that are left to the next step: made in time, with nothing else computed."""

from __future__ import annotations

import late_cases
import pytest
import torch
from jobs_of_nodes import Spec, train_all
from one_process import TOLERANCE, largest_error, trained_alone
from slow_sum_jobs import LATE, LATE_CASES, PAIR, PARTS, RANK

from launch.plan import Plan

STEPS = 20


def without_count(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: value for name, value in weights.items() if name != "changes"}


@pytest.mark.parametrize("name", LATE)
def test_weights_equal_those_of_one_process_whenever_they_were_updated(name, trained_late):
    alone = trained_alone(getattr(late_cases, LATE[name].case)(), LATE[name].global_batch)
    ours = without_count(trained_late(name).weights)
    assert largest_error(ours, without_count(alone)) < TOLERANCE


@pytest.mark.parametrize("name", ["processes", "threads"])
def test_the_next_step_begins_while_later_layers_are_not_updated(name, trained_late):
    assert trained_late(name).weights["changes"] > STEPS / 2


@pytest.mark.long
def test_step_that_uses_a_parameter_before_its_update_fails(tmp_path):
    spec = Spec("Strays", [PAIR, PARTS], file=LATE_CASES)
    with pytest.raises(AssertionError, match="is used before its update"):
        train_all({"strays": spec}, tmp_path, RANK)


@pytest.mark.long
def test_worker_that_keeps_its_node_from_updating_is_named_and_not_the_one_that_waits(tmp_path):
    plans = [PAIR, Plan(strategy="sequential", node_batch=4)]
    spec = Spec("HangsBeforeUse", plans, settings={"hang_timeout_s": 8.0}, file=LATE_CASES)
    culprit = r"JobFailed\(node='node0', worker=1, .*message='hangs"
    with pytest.raises(AssertionError, match=culprit):
        train_all({"hangs": spec}, tmp_path, RANK)


@pytest.mark.parametrize("name", ["unseen", "seen later", "scripted"])
def test_no_update_is_late_where_a_parameter_is_used_unseen(name, trained_late):
    assert trained_late(name).weights["changes"] == 0
