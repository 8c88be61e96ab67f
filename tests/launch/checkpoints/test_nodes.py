"""Several nodes go on with what the first one has kept, and no other one sees."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import tiny_cases
import torch
from jobs_of_nodes import Spec, TrainedApart, want_apart
from node_plans import ALONE, PIPELINE, TURNED
from one_process import largest_error, trained_alone

from launch.checkpoints.folder import find_latest
from launch.job import CheckpointConfig

PLANS = [replace(ALONE, node_batch=2), TURNED]
OTHERS = [replace(PIPELINE, node_batch=5), replace(ALONE, node_batch=3)]
THREE = [replace(ALONE, node_batch=2), ALONE, ALONE]
CASES = ("AdamW", "Random")
MIDDLE = "step-00000020"
"""After one epoch of 160 samples, eight a step."""


def keeping(name: str) -> dict[str, CheckpointConfig]:
    """Keep checkpoints in a folder that is on the first node alone."""
    return {"checkpoint": CheckpointConfig(folder=f"kept-{name}")}


def resuming(name: str) -> dict[str, CheckpointConfig]:
    config = CheckpointConfig(resume_from=f"kept-{name}/{MIDDLE}", done_epochs=1)
    return {"checkpoint": config}


for case in CASES:
    want_apart(
        {
            f"{case} whole": Spec(case, PLANS, 2),
            f"{case} first": Spec(case, PLANS, 1, keeping(case)),
            f"{case} second": Spec(case, PLANS, 2, resuming(case)),
            f"{case} other": Spec(case, OTHERS, 2, resuming(case)),
            f"{case} done": Spec(case, PLANS, 1, resuming(case)),
        }
    )
want_apart(
    {
        "three first": Spec("Sgd", THREE, 1, keeping("three")),
        "three second": Spec("Sgd", THREE, 2, resuming("three")),
    }
)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.long
def test_nodes_go_on_together_and_with_other_plans(
    case: str, trained_apart: Callable[[int], TrainedApart]
):
    trained = trained_apart(2)
    names = ("whole", "second", "first", "done", "other")
    whole, second, first, done, other = (trained.jobs[f"{case} {name}"].weights for name in names)
    assert all(torch.equal(second[key], whole[key]) for key in whole)
    assert all(torch.equal(done[key], first[key]) for key in first)
    assert find_latest(trained.folder / "rank0" / f"kept-{case}").path.name == MIDDLE
    assert not (trained.folder / "rank1" / f"kept-{case}").exists()
    assert not list(trained.folder.glob("*/*resumed"))
    if case == "AdamW":  # the other case draws other numbers on other workers
        alone = trained_alone(getattr(tiny_cases, case)(), node_batch=8, epochs=2)
        assert largest_error(other, alone) < 1e-4


@pytest.mark.long
def test_nodes_that_share_the_folder_of_the_run_each_have_a_copy_of_their_own(
    trained_apart: Callable[[int], TrainedApart],
):
    """The story: two nodes put their copies into one folder, and removed each other's."""
    trained = trained_apart(3)
    alone = trained_alone(tiny_cases.Sgd(), node_batch=8, epochs=2)
    assert largest_error(trained.jobs["three second"].weights, alone) < 1e-4
    assert not list(trained.folder.glob("*/*resumed"))
