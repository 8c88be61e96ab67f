"""What a training goes on with: the checkpoint's seed, its batch, and the shares of its hosts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from launch.checkpoints.manifest import Manifest
from launch.checkpoints.worker_part import WorkerPart
from launch.checkpoints.writer import CheckpointWriter
from launch.errors import CheckpointError
from launch.job import CheckpointConfig
from launch.local_group.group import LocalThreadGroup
from launch.shares import NodeLimits, StepTime
from launch.workload import Workload
from planner.cluster.node_choice import choose_nodes
from planner.cluster.prediction import ClusterNode
from planner.jobs.host_choice import fix_shares
from planner.jobs.launch_request import LaunchRequest
from planner.jobs.resuming import resolve_resume

MANIFEST = Manifest(
    use_case="simplebig",
    step=40,
    epoch=2,
    position=0,
    samples=160,
    seed=9,
    global_batch=8,
    node_batches=(5, 3),
    hosts=("n1", "n3"),
)


@pytest.fixture
def folder(tmp_path) -> Path:
    save(tmp_path / "kept", replace(MANIFEST, step=20, epoch=1), MANIFEST)
    return tmp_path / "kept"


def save(folder: Path, *manifests: Manifest) -> None:
    writer = CheckpointWriter(folder, LocalThreadGroup.create([()])[0])
    part = WorkerPart({"weight": torch.zeros(3)}, {}, {"others": {}})
    for manifest in manifests:
        writer.save(lambda: part, manifest)
    writer.close()


def start(folder: Path, warn=print, **wishes) -> tuple[LaunchRequest, dict[str, int]]:
    request = LaunchRequest(
        workload=Workload(use_case="simplebig"),
        epochs=3,
        checkpoint=CheckpointConfig(folder=str(folder)),
        resume=True,
    )
    return resolve_resume(replace(request, **wishes), warn)


def test_seed_batch_and_shares_of_a_checkpoint_count(folder):
    request, shares = start(folder, workload=Workload(use_case="simplebig", seed=4))
    assert (request.workload.seed, request.global_batch) == (9, 8)
    assert shares == {"n1": 5, "n3": 3}
    assert request.checkpoint.done_epochs == 2
    assert request.checkpoint.resume_from == str(folder / "step-00000040")


def test_the_user_may_want_another_batch_or_other_hosts(folder):
    larger, shares = start(folder, global_batch=16)
    assert (larger.global_batch, shares) == (16, {})
    every, shares = start(folder, all_hosts=True)
    assert (every.global_batch, shares) == (8, {})


def test_a_damaged_checkpoint_is_warned_of(folder):
    (folder / "step-00000040" / "weights-0.safetensors").unlink()
    warnings = []
    request, _ = start(folder, warnings.append)
    assert request.checkpoint.done_epochs == 1
    assert "step-00000040 is passed over: weights-0.safetensors cannot be read" in warnings[0]


def test_a_training_whose_epochs_are_all_done_may_be_finished(folder):
    """The story: a host was lost after the last checkpoint, and nobody came to the weights."""
    request, _ = start(folder, epochs=2)
    assert (request.epochs, request.checkpoint.done_epochs) == (2, 2)


def test_checkpoints_of_a_training_are_lost_to_no_other_one(folder):
    with pytest.raises(CheckpointError, match="already, the newest is step-00000040: go on with"):
        start(folder, resume=False)
    with pytest.raises(CheckpointError, match="is one of simplebig, not of mnist_cnn: name the"):
        start(folder, workload=Workload(use_case="mnist_cnn"))


@pytest.mark.parametrize(("position", "of"), [(0, 2), (8, 3)])
def test_a_checkpoint_of_more_than_is_asked_for_is_refused(position, of, tmp_path):
    save(tmp_path, replace(MANIFEST, position=position))
    with pytest.raises(CheckpointError, match=f"of epoch {of}: use --epochs {of} or more"):
        start(tmp_path, epochs=of - 1)


def test_hosts_of_a_checkpoint_keep_their_shares_though_others_were_faster():
    nodes = [
        ClusterNode(host=host, time=StepTime(fixed_s=0.05, per_sample_s=s), tuned_batch=128)
        for host, s in {"n1": 0.05, "n2": 0.01, "n3": 0.02}.items()
    ]
    shares = {"n1": 200, "n3": 56}
    kept = fix_shares(nodes, shares)
    verdict = choose_nodes(kept, None, None, global_batch=256, all_hosts=True)
    assert dict(zip(verdict.chosen.hosts, verdict.chosen.batches, strict=True)) == shares
    assert fix_shares(nodes, {"n1": 200, "n4": 56}) is None
    assert fix_shares(nodes, {}) is None


def test_shares_that_the_plans_of_now_cannot_take_are_not_kept():
    time = StepTime(fixed_s=0.05, per_sample_s=0.01)
    nodes = [
        ClusterNode(host="n1", time=time, tuned_batch=64, limits=NodeLimits(max_batch=128)),
        ClusterNode(host="n2", time=time, tuned_batch=64, limits=NodeLimits(min_batch=8)),
    ]
    assert fix_shares(nodes, {"n1": 128, "n2": 8}) is not None
    assert fix_shares(nodes, {"n1": 128, "n2": 7}) is None
    assert fix_shares(nodes, {"n1": 129, "n2": 8}) is None
