"""Gradients that reach the other nodes by a copy on the host, as those of a GPU do."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from conftest import TINY
from jobs_of_nodes import Spec, want_pairs
from one_process import TOLERANCE, error_of_job

from launch.plan import Plan
from launch.training.averaging.staging_buffer import _pin

MIRRORED = Path(__file__).parents[2] / "cases/mirror_cases.py"

WHOLE = Plan(strategy="sequential", node_batch=3)
PARTS = replace(WHOLE, micro_batches=2, node_batch=4)
ON_GPU = replace(PARTS, devices=("cuda:0",), memory_format="channels_last")
CASES = ["Tied", "Uneven", "Sparse", "SparseRows", "Clipped"]
SPECS = {
    **{
        case: Spec(case, [WHOLE, PARTS], 2 if case == "Uneven" else 1, file=MIRRORED)
        for case in CASES
    },
    "Early": Spec("Early", [PARTS, WHOLE], file=MIRRORED),
}
GPU_SPECS = {"GPU": Spec("Tied", [ON_GPU, PARTS], epochs=2, file=TINY)}
want_pairs("mirror", SPECS)
if torch.cuda.is_available():
    want_pairs("mirror", GPU_SPECS, are_long=True)

PINNED = torch.zeros(1 << 20, dtype=torch.uint8)
"""Never freed: CUDA would go on to take what comes to lie there for pinned."""


@pytest.mark.parametrize("case", CASES)
def test_weights_equal_those_of_one_process(case, trained_pair):
    assert error_of_job(SPECS[case], trained_pair("mirror", case)) < TOLERANCE


@pytest.mark.gpu
def test_gpu_and_cpu_train_as_one_process(trained_pair):
    assert error_of_job(GPU_SPECS["GPU"], trained_pair("mirror", "GPU")) < TOLERANCE


def test_last_layers_are_on_their_way_while_the_first_is_computed(trained_pair):
    assert trained_pair("mirror", "Early").weights["sent"] == 2  # weight and bias of the last one


@pytest.mark.gpu
def test_memory_that_cannot_be_pinned_leaves_the_gpu_usable(capsys):
    """The story: what CUDA had refused was raised by whatever came next."""
    for _ in range(2):  # what is pinned already is refused
        _pin(PINNED)
    assert torch.ones(3, device="cuda").sum() == 3
    assert re.search(r"cannot be pinned: CUDA error \d+$", capsys.readouterr().out, re.MULTILINE)
