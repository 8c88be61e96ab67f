"""A node's part of a job, and the rank that runs it."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from ranks_here import ROOT, run_ranks

from launch.job import Job, NodeJob
from launch.plan import Plan
from launch.rank.node import Node
from launch.reports import EndRequested, JobFailed, Report, StepDone
from launch.workload import Workload
from probes import codec

TINY = Path(__file__).parents[1] / "cases/tiny_cases.py"
APART = Path(__file__).parents[1] / "ranks/rank_apart.py"
ALONE = Plan(strategy="sequential", node_batch=8)


def job_of(case: str, directory: Path, plan: Plan = ALONE, epochs: int = 1) -> Job:
    return Job(
        workload=Workload(use_case=f"{TINY}:{case}"),
        nodes=(NodeJob(host="localhost", plan=plan),),
        run_directory=str(directory),
        epochs=epochs,
    )


def test_node_whose_data_never_come_fails_with_the_line_that_waits(
    two_cores, tmp_path, servers, monkeypatch
):
    monkeypatch.setattr("launch.rank.node.DATA_TIMEOUT_S", 2.0)
    said, asked, get = [], [], servers.get
    monkeypatch.setattr(servers, "get", lambda plan=None: asked.append(plan) or get(plan))
    job = job_of("NoData", tmp_path)
    assert not Node(job, 0, two_cores.cpu, said.append).train(servers)
    assert ALONE in asked  # whose allocator and way of waiting a process must be started with
    failed = said[-1]
    assert isinstance(failed, JobFailed)
    assert failed.is_hang
    assert re.fullmatch(r"hangs, idle for \d+ s while its data are made ready", failed.message)
    assert "in dataset" in failed.log_tail


def ranks_of(job: Job, count: int, directory: Path) -> subprocess.CompletedProcess[str]:
    """Run a job's ranks, all of them here."""
    file = directory / "job.json"
    file.write_bytes(codec.encode(job))
    return run_ranks(count, ["-m", "launch.rank", str(file)])


def messages_of(ended: subprocess.CompletedProcess[str]) -> set[str]:
    said = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]
    return {report["message"] for report in said if "message" in report}


def test_more_ranks_than_nodes_are_one_line(tmp_path):
    """The story: the second rank looked for its node before it counted them, and an IndexError
    was all that was said."""
    ended = ranks_of(job_of("Sgd", tmp_path), 2, tmp_path)
    assert ended.returncode != 0
    assert messages_of(ended) == {"MPI started ranks=2 for hosts=1: is this mpirun ours?"}
    assert "IndexError" not in ended.stderr


def test_mpi_that_allows_one_thread_alone_is_refused_in_a_line(tmp_path, monkeypatch):
    """The story: several threads of a rank call MPI, which may answer anything then."""
    monkeypatch.setenv("MPI4PY_RC_THREAD_LEVEL", "serialized")
    job = job_of("Sgd", tmp_path)
    ended = ranks_of(replace(job, nodes=job.nodes * 2), 2, tmp_path)
    assert ended.returncode != 0
    (message,) = messages_of(ended)
    assert message.startswith(
        "MPI has thread level serialized and ranks of several hosts need multiple: leave "
    )
    assert not (tmp_path / "weights.safetensors").exists()


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("Diverges", "the training loss of step 13 (epoch 1) is nan"),
        pytest.param(
            *("DivergesInValidation", "the validation loss of epoch 1 is inf"),
            marks=pytest.mark.long,
        ),
    ],
)
def test_all_nodes_stop_where_there_is_no_number_any_more(case, message, tmp_path):
    """In validation one sample of nine is left over, on one of the nodes. A gradient that is no
    number makes the next loss none: all wire formats pass it on, test_encoded_sum.py has.
    """
    job = job_of(case, tmp_path, replace(ALONE, node_batch=4))
    ended = ranks_of(replace(job, nodes=job.nodes * 2), 2, tmp_path)
    assert ended.returncode != 0
    said = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]
    failed = [report for report in said if report["kind"] == "JobFailed"]
    assert {report["message"] for report in failed if not report["is_consequence"]} == {message}
    assert failed[0]["is_not_finite"]
    assert not (tmp_path / "weights.safetensors").exists()


def test_rank_that_is_on_another_host_trains_nothing(tmp_path):
    job = job_of("Sgd", tmp_path)
    job = replace(job, nodes=(replace(job.nodes[0], machine="elsewhere"),))
    ended = ranks_of(job, 1, tmp_path)
    assert ended.returncode != 0
    (message,) = messages_of(ended)
    assert re.match("MPI started rank 0 on .*, not on elsewhere: ", message)
    assert not (tmp_path / "weights.safetensors").exists()


def test_use_case_that_was_changed_since_its_plan_was_found_is_checked_first(tmp_path):
    job = replace(job_of("Raises", tmp_path), case_digests=("sha256:0",))
    ended = ranks_of(job, 1, tmp_path)
    assert ended.returncode != 0
    assert any(
        "the model or the loss fails on a batch of (float32 " in said for said in messages_of(ended)
    )


def test_folder_that_cannot_be_made_is_a_failure_of_that_node(tmp_path):
    """The story: a traceback of Python was all that was said, and no host."""
    (tmp_path / "runs").write_text("")
    folder = tmp_path / "runs" / "1"
    ended = ranks_of(job_of("Sgd", folder), 1, tmp_path)
    assert ended.returncode != 0
    assert messages_of(ended) == {f"{folder}: not a directory"}
    assert "Traceback" not in ended.stderr


def log_in(folder: Path, host: str = "localhost") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / f"{host}-worker0.log"
    log.write_text("the last word of an earlier run\n")
    return log


def test_log_of_an_earlier_run_is_not_taken_for_this_one(two_cores, tmp_path, servers):
    """The story: on a host's own disk another run had that number, whose last words were shown."""
    own, other = log_in(tmp_path), log_in(tmp_path, "localhost-worker1")
    said = []
    assert not Node(job_of("Raises", tmp_path), 0, two_cores.cpu, said.append).train(servers)
    assert isinstance(said[-1], JobFailed)
    assert "beyond me" in said[-1].log_tail
    assert "earlier run" not in said[-1].log_tail + own.read_text()
    assert other.exists()


def test_node_whose_use_case_is_at_fault_leaves_nothing(two_cores, tmp_path, servers):
    folder = tmp_path / "runs" / "1"
    said = []
    job = job_of("NoSuchCase", folder)
    assert not Node(job, 0, two_cores.cpu, said.append).train(servers)
    assert isinstance(said[-1], JobFailed)
    assert said[-1].users_fault
    assert list(tmp_path.iterdir()) == []


def apart(job: Job, directory: Path) -> subprocess.CompletedProcess[str]:
    """Run a job on two hosts, each rank in a folder of its own: `rank0`, `rank1`."""
    job = replace(job, nodes=(*job.nodes, replace(job.nodes[0], host="second")))
    file = directory / "job.json"
    file.write_bytes(codec.encode(job))
    return run_ranks(2, [str(APART), str(directory), str(file)])


@pytest.mark.long
def test_node_that_is_ended_before_its_first_step_leaves_nothing(tmp_path):
    """The other one's use case is at fault, so that mpirun ends both."""
    ended = apart(job_of("FaultyOnSecond", Path("runs") / "1"), tmp_path)
    assert ended.returncode != 0
    assert "the data are of another kind" in ended.stdout
    assert [list((tmp_path / f"rank{rank}").iterdir()) for rank in (0, 1)] == [[], []]


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (
            "OtherData",
            "localhost has 160 training samples, second 152: give every host the same data",
        ),
        (
            "OtherWidth",
            "parameter 6 has shape [3, 16] on localhost and [4, 16] on second: give every host the "
            "same use case and the same versions",
        ),
    ],
)
@pytest.mark.long
def test_nodes_that_differ_train_nothing(tmp_path, case, message):
    ended = apart(job_of(case, Path("runs") / "1"), tmp_path)
    assert ended.returncode != 0
    assert message in messages_of(ended)
    assert "StepDone" not in ended.stdout


SLURM = """#!{python}
import subprocess, sys
rank = [{python!r}, "-m", "mpi4py", "-m", "launch.rank", *sys.argv[1:]]
sys.exit(subprocess.run(rank).returncode)
"""
"""The program that starts the ranks of a job in Slurm, as far as its name goes."""


def test_ranks_say_that_slurm_has_asked_for_their_end(tmp_path):
    """By SIGTERM, which elsewhere ends them at once."""
    file, slurm = tmp_path / "job.json", tmp_path / "slurmstepd"
    file.write_bytes(codec.encode(job_of("Sgd", tmp_path, epochs=10**6)))
    slurm.write_text(SLURM.format(python=sys.executable))
    slurm.chmod(0o700)
    said: list[Report] = []
    with subprocess.Popen([slurm, file], cwd=ROOT, stdout=subprocess.PIPE) as process:
        for line in process.stdout:
            said.append(Report.decode(line))
            if isinstance(said[-1], StepDone) and said[-1].step == 1:
                (rank,) = psutil.Process(process.pid).children()
                rank.terminate()
    assert process.returncode == 0
    assert EndRequested(signal=signal.SIGTERM) in said
