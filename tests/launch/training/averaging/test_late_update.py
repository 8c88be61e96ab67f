"""Updates that are left to the next step: made in time, with nothing else computed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import late_cases
import pytest
import torch
from jobs_of_nodes import Spec, Trained, train_all, trained_when_asked
from one_process import TOLERANCE, largest_error, trained_alone

from launch.plan import Plan

LATE = Path(late_cases.__file__)
RANK = Path(__file__).parents[2] / "rank_with_slow_sums.py"
STEPS = 20

PAIR = Plan(strategy="processes", processes=2, replicas=2, node_batch=5)
ALONE = Plan(strategy="sequential", node_batch=4)
THREADS = Plan(strategy="threads", threads_per_process=2, replicas=2, node_batch=3)
PARTS = replace(PAIR, micro_batches=2, node_batch=4)
SPECS = {
    "processes": Spec("Late", [PAIR, PARTS], file=LATE),
    "threads": Spec("Late", [PAIR, THREADS], file=LATE),
    "unseen": Spec("Unseen", [PAIR, PARTS], file=LATE),
    "seen later": Spec("SeenLater", [PAIR, PARTS], file=LATE),
    "scripted": Spec("Scripted", [PAIR, PARTS], file=LATE),
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Trained]:
    return trained_when_asked(SPECS, tmp_path_factory.mktemp("late"), RANK)


def without_count(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: value for name, value in weights.items() if name != "changes"}


@pytest.mark.parametrize("name", SPECS)
def test_weights_equal_those_of_one_process_whenever_they_were_updated(name, trained):
    alone = trained_alone(getattr(late_cases, SPECS[name].case)(), SPECS[name].global_batch)
    ours = without_count(trained(name).weights)
    assert largest_error(ours, without_count(alone)) < TOLERANCE


@pytest.mark.parametrize("name", ["processes", "threads"])
def test_the_next_step_begins_while_later_layers_are_not_updated(name, trained):
    assert trained(name).weights["changes"] > STEPS / 2


@pytest.mark.long
def test_step_that_uses_a_parameter_before_its_update_fails(tmp_path):
    spec = Spec("Strays", [PAIR, PARTS], file=LATE)
    with pytest.raises(AssertionError, match="is used before its update"):
        train_all({"strays": spec}, tmp_path, RANK)


@pytest.mark.long
def test_worker_that_keeps_its_node_from_updating_is_named_and_not_the_one_that_waits(tmp_path):
    spec = Spec("HangsBeforeUse", [PAIR, ALONE], settings={"hang_timeout_s": 3.0}, file=LATE)
    culprit = r"JobFailed\(node='node0', worker=1, .*message='hangs"
    with pytest.raises(AssertionError, match=culprit):
        train_all({"hangs": spec}, tmp_path, RANK)


@pytest.mark.parametrize("name", ["unseen", "seen later", "scripted"])
def test_no_update_is_late_where_a_parameter_is_used_unseen(name, trained):
    assert trained(name).weights["changes"] == 0
