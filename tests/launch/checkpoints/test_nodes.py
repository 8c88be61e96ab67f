"""Several nodes go on with what the first one has kept, and no other one sees."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import tiny_cases
import torch
from conftest import SEED, TINY
from node_plans import ALONE, PIPELINE, TURNED
from one_process import largest_error, trained_alone
from ranks_here import run_ranks
from safetensors.torch import load_file

from launch.checkpoints.folder import find_latest
from launch.job import CheckpointConfig, Job, NodeJob
from launch.workload import Workload
from probes import codec

RANK = Path(__file__).parents[1] / "ranks/rank_apart.py"
PLANS = [replace(ALONE, node_batch=2), TURNED]
OTHERS = [replace(PIPELINE, node_batch=5), replace(ALONE, node_batch=3)]
THREE = [replace(ALONE, node_batch=2), ALONE, ALONE]
MIDDLE = "kept/step-00000020"
"""After one epoch of 160 samples, eight a step, by its path on the first node alone."""

KEEPS, RESUMES = (
    CheckpointConfig(folder="kept"),
    CheckpointConfig(resume_from=MIDDLE, done_epochs=1),
)


def job_of(
    name: str, case: str, plans, *, epochs: int, checkpoint: CheckpointConfig, folder: Path
) -> Path:
    nodes = [NodeJob(host=f"node{i}", plan=plan) for i, plan in enumerate(plans)]
    job = Job(
        workload=Workload(use_case=f"{TINY}:{case}", seed=SEED),
        nodes=tuple(nodes),
        run_directory=str(folder / name),
        epochs=epochs,
        checkpoint=checkpoint,
    )
    (folder / name).mkdir()
    file = folder / name / "job.json"
    file.write_bytes(codec.encode(job))
    return file


def run(folder: Path, jobs: list[Path], *, nodes: int = 2) -> None:
    ended = run_ranks(nodes, [str(RANK), str(folder), *map(str, jobs)], timeout_s=560)
    assert ended.returncode == 0, f"{ended.stdout[-3000:]}\n{ended.stderr}"


@pytest.mark.parametrize("case", ["AdamW", "Random"])
@pytest.mark.long
def test_nodes_go_on_together_and_with_other_plans(case, tmp_path):
    settings = {"folder": tmp_path}
    jobs = [
        job_of("whole", case, PLANS, epochs=2, checkpoint=CheckpointConfig(), **settings),
        job_of("first", case, PLANS, epochs=1, checkpoint=KEEPS, **settings),
        job_of("second", case, PLANS, epochs=2, checkpoint=RESUMES, **settings),
        job_of("other", case, OTHERS, epochs=2, checkpoint=RESUMES, **settings),
        job_of("done", case, PLANS, epochs=1, checkpoint=RESUMES, **settings),
    ]
    run(tmp_path, jobs)
    names = ("whole", "second", "first", "done", "other")
    whole, second, first, done, other = (
        load_file(tmp_path / name / "weights.safetensors") for name in names
    )
    assert all(torch.equal(second[key], whole[key]) for key in whole)
    assert all(torch.equal(done[key], first[key]) for key in first)
    assert find_latest(tmp_path / "rank0" / "kept").path.name == Path(MIDDLE).name
    assert not (tmp_path / "rank1" / "kept").exists()
    assert not list(tmp_path.glob("*/*resumed"))
    if case == "AdamW":  # the other case draws other numbers on other workers
        alone = trained_alone(getattr(tiny_cases, case)(), node_batch=8, epochs=2)
        assert largest_error(other, alone) < 1e-4


@pytest.mark.long
def test_nodes_that_share_the_folder_of_the_run_each_have_a_copy_of_their_own(tmp_path):
    """The story: two nodes put their copies into one folder, and removed each other's."""
    jobs = [
        job_of("first", "Sgd", THREE, epochs=1, checkpoint=KEEPS, folder=tmp_path),
        job_of("second", "Sgd", THREE, epochs=2, checkpoint=RESUMES, folder=tmp_path),
    ]
    run(tmp_path, jobs, nodes=3)
    alone = trained_alone(tiny_cases.Sgd(), node_batch=8, epochs=2)
    assert largest_error(load_file(tmp_path / "second" / "weights.safetensors"), alone) < 1e-4
    assert not list(tmp_path.glob("*/*resumed"))
