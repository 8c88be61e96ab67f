"""Several nodes of one job: each with a plan and a share of its own, and one model in the end."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import tiny_cases
import torch
from conftest import TINY
from safetensors.torch import load_file
from test_strategies import SEED, TOLERANCE, largest_error, trained_alone

from launch.job import Job, NodeJob
from launch.mpi.mpirun import find_mpirun
from launch.plan import Plan
from launch.workers.reports import Report

RANK = Path(__file__).with_name("rank_of_four.py")

ALONE = Plan(strategy="sequential", node_batch=3)
PAIR = Plan(strategy="processes", processes=2, replicas=2, node_batch=5)
TURNED = replace(PAIR, memory_format="channels_last", micro_batches=2, node_batch=6)
THREADS = Plan(strategy="threads", threads_per_process=2, replicas=2, node_batch=4)
PIPELINE = Plan(strategy="pipeline", processes=2, node_batch=6, micro_batches=2)
HYBRID = Plan(strategy="hybrid", processes=4, replicas=2, node_batch=8, micro_batches=2)
REDUCED = replace(HYBRID, options={"average": "all_reduce"})
DDP = Plan(strategy="gpu_data", processes=2, replicas=2, node_batch=4)

MIXES = {
    "equal": [ALONE, ALONE],
    "unequal": [replace(ALONE, node_batch=2), PAIR],
    "formats": [PAIR, TURNED],
    "threads and stages": [THREADS, PIPELINE],
    "grids": [HYBRID, REDUCED],
    "copies": [DDP, ALONE, TURNED],
    "four": [PAIR, ALONE, THREADS, PIPELINE],
}


class Launched:
    """A job whose ranks are all on this machine."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.reports: list[Report] = []

    def run(self, case: str, plans: Sequence[Plan], **settings: object) -> dict[str, torch.Tensor]:
        """Train and return the weights."""
        job = Job(
            use_case=f"{TINY}:{case}",
            nodes=tuple(NodeJob(host=f"node{n}", plan=plan) for n, plan in enumerate(plans)),
            run_directory=str(self._directory),
            seed=SEED,
            **settings,  # type: ignore[arg-type]
        )
        file = self._directory / "job.json"
        file.write_bytes(job.encode())
        ended = subprocess.run(
            [
                *(find_mpirun(), "--host", f"localhost:{len(plans)}", "-n", str(len(plans))),
                *("--bind-to", "none", sys.executable, "-m", "mpi4py", str(RANK), str(file)),
            ],
            env=os.environ | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"},
            capture_output=True,
            timeout=120,
            check=False,
        )
        lines = [line for line in ended.stdout.splitlines() if line.startswith(b"{")]
        self.reports = [Report.decode(line) for line in lines]
        assert ended.returncode == 0, f"{self.reports[-1:]}\n{ended.stderr.decode()}"
        return load_file(self._directory / "weights.safetensors")


@pytest.fixture
def launched(tmp_path: Path) -> Launched:
    return Launched(tmp_path)


def start_of(case: str) -> dict[str, torch.Tensor]:
    torch.manual_seed(SEED)
    model = getattr(tiny_cases, case)().model()
    return {name: value.clone() for name, value in model.state_dict().items()}


@pytest.mark.parametrize("mix", MIXES)
def test_gradients_of_several_nodes_equal_those_of_one_process_on_all_samples(mix, launched):
    plans = MIXES[mix]
    alone = trained_alone(tiny_cases.Gradient(), sum(plan.node_batch for plan in plans))
    weights = launched.run("Gradient", plans)
    start = start_of("Gradient")
    expected = {name: start[name] - alone[name] for name in start}
    assert largest_error({n: start[n] - weights[n] for n in start}, expected) < TOLERANCE


@pytest.mark.parametrize(
    "case",
    ["AdamW", "Groups", "WholeTensors", "Tied", "Uneven", "Clipped", "Scheduled", "Sparse"],
)
def test_weights_of_unequal_nodes_equal_those_of_one_process(case, launched):
    plans = [replace(ALONE, node_batch=2), TURNED]
    epochs = 3 if case == "Uneven" else 1
    alone = trained_alone(getattr(tiny_cases, case)(), 8, epochs)
    assert largest_error(launched.run(case, plans, epochs=epochs), alone) < TOLERANCE
