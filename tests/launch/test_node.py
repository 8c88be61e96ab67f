"""A node's part of a job, and the rank that runs it."""

from __future__ import annotations

import json
import re
import subprocess
import time
from dataclasses import replace
from pathlib import Path

from ranks_here import run_ranks

from launch.job import Job, NodeJob
from launch.node import Node
from launch.plan import Plan
from launch.workers.reports import JobFailed, StepDone

TINY = Path(__file__).with_name("tiny_cases.py")
ALONE = Plan(strategy="sequential", node_batch=8)


def job_of(case: str, directory: Path, plan: Plan = ALONE, epochs: int = 1) -> Job:
    return Job(
        use_case=f"{TINY}:{case}",
        nodes=(NodeJob(host="localhost", plan=plan),),
        run_directory=str(directory),
        epochs=epochs,
    )


def test_job_that_is_not_wanted_any_more_ends_though_its_workers_are_never_silent(
    two_cores, tmp_path
):
    started = time.monotonic()
    job = job_of("Sgd", tmp_path, epochs=10**6)

    said = []
    assert not Node(
        job,
        0,
        two_cores.cpu,
        said.append,
        lambda: not any(isinstance(report, StepDone) for report in said),
    ).train()
    assert time.monotonic() - started < 60


def test_node_whose_data_never_come_fails_with_the_line_that_waits(
    two_cores, tmp_path, monkeypatch
):
    monkeypatch.setattr("launch.node.DATA_LIMIT_S", 2.0)
    said = []
    job = job_of("NoData", tmp_path)
    assert not Node(job, 0, two_cores.cpu, said.append, lambda: True).train()
    failed = said[-1]
    assert isinstance(failed, JobFailed)
    assert failed.is_hang
    assert re.fullmatch(r"hangs, idle for \d+ s while its data are made ready", failed.message)
    assert "in dataset" in failed.log_tail


def ranks_of(job: Job, count: int, directory: Path) -> subprocess.CompletedProcess[str]:
    """Run a job's ranks, all of them here."""
    file = directory / "job.json"
    file.write_bytes(job.encode())
    return run_ranks(count, ["-m", "launch.rank", str(file)])


def messages_of(ended: subprocess.CompletedProcess[str]) -> set[str]:
    said = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]
    return {report["message"] for report in said if "message" in report}


def test_more_ranks_than_nodes_are_one_line(tmp_path):
    """The story: the second rank looked for its node before it counted them, and an IndexError
    was all that was said."""
    ended = ranks_of(job_of("Sgd", tmp_path), 2, tmp_path)
    assert ended.returncode != 0
    assert messages_of(ended) == {"MPI started 2 ranks for 1 hosts: is this mpirun ours?"}
    assert "IndexError" not in ended.stderr


def test_rank_that_is_on_another_host_trains_nothing(tmp_path):
    job = job_of("Sgd", tmp_path)
    job = replace(job, nodes=(replace(job.nodes[0], machine="elsewhere"),))
    ended = ranks_of(job, 1, tmp_path)
    assert ended.returncode != 0
    (message,) = messages_of(ended)
    assert re.match("MPI started rank 0 on .*, not on elsewhere: ", message)
    assert not (tmp_path / "weights.safetensors").exists()
