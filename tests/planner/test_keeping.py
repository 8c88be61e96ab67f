"""What a training goes on with: the checkpoint's seed, its batch, and the shares of its hosts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from launch.checkpoints.manifest import Manifest
from launch.checkpoints.part import WorkerPart
from launch.checkpoints.writer import CheckpointWriter
from launch.shares import StepTime
from launch.training.group import ThreadGroup
from planner.cluster import judge
from planner.job_making import LaunchRequest, keep_shares
from planner.keeping import find_start
from planner.prediction import ClusterNode

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
    writer = CheckpointWriter(tmp_path / "kept", ThreadGroup.create([()])[0])
    part = WorkerPart({"weight": torch.zeros(3)}, {}, {"others": {}})
    writer.save(lambda: part, replace(MANIFEST, step=20, epoch=1))
    writer.save(lambda: part, MANIFEST)
    writer.close()
    return tmp_path / "kept"


def start(folder: Path, warn=print, **wishes) -> LaunchRequest:
    request = LaunchRequest(use_case="simplebig", epochs=3, checkpoint=folder, resumes=True)
    return find_start(replace(request, **wishes), warn)


def test_seed_batch_and_shares_of_a_checkpoint_count(folder):
    request = start(folder, seed=4)
    assert (request.seed, request.global_batch, request.done_epochs) == (9, 8, 2)
    assert request.kept_shares == {"n1": 5, "n3": 3}
    assert request.keeping.resume == str(folder / "step-00000040")


def test_the_user_may_want_another_batch_or_other_hosts(folder):
    larger = start(folder, global_batch=16)
    assert (larger.global_batch, larger.kept_shares) == (16, None)
    every = start(folder, all_hosts=True)
    assert (every.global_batch, every.kept_shares) == (8, None)


def test_a_damaged_checkpoint_is_warned_of(folder):
    (folder / "step-00000040" / "weights-0.safetensors").unlink()
    warnings = []
    request = start(folder, warnings.append)
    assert request.done_epochs == 1
    assert "step-00000040 is passed over: weights-0.safetensors cannot be read" in warnings[0]


def test_hosts_of_a_checkpoint_keep_their_shares_though_others_were_faster():
    nodes = [
        ClusterNode(host=host, time=StepTime(fixed_s=0.05, per_sample_s=s), tuned_batch=128)
        for host, s in {"n1": 0.05, "n2": 0.01, "n3": 0.02}.items()
    ]
    shares = {"n1": 200, "n3": 56}
    kept = keep_shares(nodes, shares)
    verdict = judge(kept, None, None, global_batch=256, all_hosts=True)
    assert dict(zip(verdict.chosen.hosts, verdict.chosen.batches, strict=True)) == shares
    assert keep_shares(nodes, {"n1": 200, "n4": 56}) is None
    assert keep_shares(nodes, {}) is None
