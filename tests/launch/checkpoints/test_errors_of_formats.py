"""What the messages between nodes have not said yet goes on with a training."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from conftest import SEED, TINY
from node_plans import ALONE, HYBRID, PAIR, THREADS, TURNED
from ranks_here import run_ranks
from safetensors.torch import load_file

from launch.checkpoints.checkpoint import Checkpoint
from launch.job import CheckpointConfig, Job, NodeJob
from launch.workload import Workload
from probes import codec

RANK = Path(__file__).parents[1] / "ranks/rank_with_checkpoints.py"
PLANS = {
    "top1": [PAIR, TURNED],
    "int8": [HYBRID, ALONE],
    "bf16": [THREADS, ALONE, TURNED],
}
MIDDLE = "kept/step-00000010"
"""In the first epoch, and written by both trainings."""


def job_of(folder: Path, name: str, wire: str, epochs: int, checkpoint: CheckpointConfig) -> Path:
    nodes = [NodeJob(host=f"node{i}", plan=plan) for i, plan in enumerate(PLANS[wire])]
    job = Job(
        workload=Workload(use_case=f"{TINY}:Sgd", seed=SEED),
        nodes=tuple(nodes),
        run_directory=str(folder / name),
        epochs=epochs,
        checkpoint=checkpoint,
        wire=wire,
        all_reduce="tree" if wire == "int8" else "ring",
    )
    (folder / name).mkdir()
    file = folder / name / "job.json"
    file.write_bytes(codec.encode(job))
    return file


@pytest.mark.parametrize("wire", PLANS)
@pytest.mark.long
def test_a_resumed_training_does_what_one_does_that_just_goes_on(wire, tmp_path):
    """Both have written a checkpoint in the middle, which leaves all errors to the first node."""
    jobs = [
        job_of(tmp_path, "whole", wire, 2, CheckpointConfig(folder="kept-whole")),
        job_of(tmp_path, "first", wire, 1, CheckpointConfig(folder="kept")),
        job_of(
            tmp_path,
            "second",
            wire,
            2,
            CheckpointConfig(folder="kept", resume_from=MIDDLE),
        ),
    ]
    ended = run_ranks(len(PLANS[wire]), [str(RANK), str(tmp_path), *map(str, jobs)], timeout_s=560)
    assert ended.returncode == 0, f"{ended.stdout[-3000:]}\n{ended.stderr}"
    whole, second = (
        load_file(tmp_path / name / "weights.safetensors") for name in ("whole", "second")
    )
    assert all(torch.equal(second[name], whole[name]) for name in whole)
    last = max((tmp_path / "rank0" / "kept").glob("step-*"))
    with Checkpoint(last) as checkpoint:
        errors = dict(checkpoint.errors())
    assert errors.keys() == whole.keys()
    assert all(errors[name].shape == whole[name].shape for name in whole)
    assert any(error.any() for error in errors.values())
