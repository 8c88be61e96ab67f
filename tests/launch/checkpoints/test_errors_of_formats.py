"""What the messages between nodes have not said yet goes on with a training."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from jobs_of_nodes import Spec, TrainedApart, want_apart
from node_plans import ALONE, HYBRID, PAIR, THREADS, TURNED

from launch.checkpoints.checkpoint import Checkpoint
from launch.job import CheckpointConfig

PLANS = {
    "top1": [PAIR, TURNED],
    "int8": [HYBRID, ALONE],
    "bf16": [THREADS, ALONE, TURNED],
}
MIDDLE = "step-00000010"
"""In the first epoch, and written by both trainings."""


def spec_of(wire: str, epochs: int, **checkpoint: str) -> Spec:
    settings = {"wire": wire, "all_reduce": "tree" if wire == "int8" else "ring"}
    settings |= {"checkpoint": CheckpointConfig(**checkpoint)}
    return Spec("Sgd", PLANS[wire], epochs, settings, is_punctual=True)


for wire in PLANS:
    kept = f"kept-{wire}"
    want_apart(
        {
            f"{wire} whole": spec_of(wire, 2, folder=f"{kept}-whole"),
            f"{wire} first": spec_of(wire, 1, folder=kept),
            f"{wire} second": spec_of(wire, 2, folder=kept, resume_from=f"{kept}/{MIDDLE}"),
        }
    )


@pytest.mark.parametrize("wire", PLANS)
@pytest.mark.long
def test_a_resumed_training_does_what_one_does_that_just_goes_on(
    wire: str, trained_apart: Callable[[int], TrainedApart]
):
    """Both have written a checkpoint in the middle, which leaves all errors to the first node."""
    trained = trained_apart(len(PLANS[wire]))
    whole, second = (trained.jobs[f"{wire} {name}"].weights for name in ("whole", "second"))
    assert all(torch.equal(second[name], whole[name]) for name in whole)
    last = max((trained.folder / "rank0" / f"kept-{wire}").glob("step-*"))
    with Checkpoint(last) as checkpoint:
        errors = dict(checkpoint.errors())
    assert errors.keys() == whole.keys()
    assert all(errors[name].shape == whole[name].shape for name in whole)
    assert any(error.any() for error in errors.values())
