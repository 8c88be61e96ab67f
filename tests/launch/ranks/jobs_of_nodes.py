"""Jobs of several nodes on this machine: one rank each, one after the other in one mpirun."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import torch
from conftest import SEED, TINY
from ranks_here import run_ranks
from safetensors.torch import load_file

from launch.job import Job, NodeJob
from launch.plan import Plan
from launch.reports import JobFailed, Report
from launch.shares import StepTime
from launch.workload import Workload
from probes import codec

_RANK = Path(__file__).with_name("rank_of_four.py")
_RANK_APART = Path(__file__).with_name("rank_apart.py")


@dataclass(frozen=True)
class Spec:
    """A job."""

    case: str
    plans: Sequence[Plan]
    epochs: int = 1
    settings: dict[str, Any] = field(default_factory=dict)
    step_time: StepTime | None = None
    file: Path = TINY
    has_slow_sums: bool = False
    """Whether sums come late, as over a slow network."""
    is_punctual: bool = False
    """Whether a rank in a folder of its own writes a checkpoint after every tenth step."""

    @property
    def global_batch(self) -> int:
        return sum(plan.node_batch for plan in self.plans)

    @property
    def job_file(self) -> str:
        """Name by which a rank knows what is special."""
        if self.has_slow_sums:
            return "slow-job.json"
        return "punctual-job.json" if self.is_punctual else "job.json"

    def job(self, directory: Path) -> Job:
        return Job(
            workload=Workload(use_case=f"{self.file}:{self.case}", seed=SEED),
            nodes=tuple(
                NodeJob(host=f"node{number}", plan=plan, step_time=self.step_time)
                for number, plan in enumerate(self.plans)
            ),
            run_directory=str(directory),
            epochs=self.epochs,
            **self.settings,
        )


_PAIRS: dict[str, Spec] = {}
_LONG_PAIRS: dict[str, Spec] = {}


def want_pairs(of: str, specs: Mapping[str, Spec], *, are_long: bool = False) -> None:
    """Let jobs of two nodes be trained in the one mpirun that files of tests share.

    Each start of it loads torch twice. Files that pytest does not run want nothing.

    Args:
        of: Name of the file.
        specs: Of its jobs, by name.
        are_long: Whether long tests alone ask for them, or such that need a GPU: these share an
            mpirun of their own.
    """
    pairs = _LONG_PAIRS if are_long else _PAIRS
    pairs.update({f"{of} {name}": spec for name, spec in specs.items()})


def pairs_trained_when_asked(folder: Path) -> Callable[[str, str], Trained]:
    """Give what gives the outcome of such a job by the names of its file and of itself."""
    train = trained_when_asked(_PAIRS, folder)
    train_long = trained_when_asked(_LONG_PAIRS, folder / "long")

    def find(of: str, name: str) -> Trained:
        wanted = f"{of} {name}"
        return train_long(wanted) if wanted in _LONG_PAIRS else train(wanted)

    return find


@dataclass(frozen=True)
class Trained:
    """What a job left."""

    weights: dict[str, torch.Tensor]
    reports: list[Report]

    def of(self, kind: type) -> list[Any]:
        return [report for report in self.reports if isinstance(report, kind)]


@dataclass(frozen=True)
class TrainedApart:
    """What jobs left whose ranks see nothing of each other's folders."""

    folder: Path
    """With that of each rank: `rank0`, `rank1`."""

    jobs: Mapping[str, Trained]


_APART: dict[int, dict[str, Spec]] = {}


def want_apart(specs: Mapping[str, Spec]) -> None:
    """Let jobs be trained by ranks in folders of their own, those of as many nodes in one mpirun.

    They run in this order. Each name is that of one job in all files of tests.
    """
    for name, spec in specs.items():
        jobs = _APART.setdefault(len(spec.plans), {})
        assert jobs.setdefault(name, spec) == spec


def apart_trained_when_asked(folder: Path) -> Callable[[int], TrainedApart]:
    """Give what gives the outcome of all such jobs of as many nodes."""

    @cache
    def train(nodes: int) -> TrainedApart:
        own = folder / f"{nodes}-nodes"
        return TrainedApart(own, train_all(_APART[nodes], own, are_apart=True))

    return train


def train_all(
    specs: Mapping[str, Spec], folder: Path, *, are_apart: bool = False
) -> dict[str, Trained]:
    """Run jobs of equally many nodes.

    Args:
        specs: Of the jobs, by name.
        folder: Takes what they leave.
        are_apart: Whether each rank works in a folder of its own in it.
    """
    folders = {name: folder / name.replace(" ", "-") for name in specs}
    files = []
    for name, own in folders.items():
        own.mkdir(parents=True)
        files.append(own / specs[name].job_file)
        files[-1].write_bytes(codec.encode(specs[name].job(own)))
    nodes = len(next(iter(specs.values())).plans)
    rank = [str(_RANK_APART), str(folder)] if are_apart else [str(_RANK)]
    ended = run_ranks(nodes, [*rank, *map(str, files)], timeout_s=560)
    said = {name: _reports(own) for name, own in folders.items()}
    failed = [report for of in said.values() for report in of if isinstance(report, JobFailed)]
    assert ended.returncode == 0, f"{failed}\n{ended.stdout[-3000:]}\n{ended.stderr}"
    return {
        name: Trained(load_file(own / "weights.safetensors"), said[name])
        for name, own in folders.items()
    }


def trained_when_asked(specs: Mapping[str, Spec], folder: Path) -> Callable[[str], Trained]:
    """Give what gives a job's outcome by its name; all run when the first one is asked for."""

    @cache
    def train() -> dict[str, Trained]:
        return train_all(specs, folder)

    return lambda name: train()[name]


def _reports(folder: Path) -> list[Report]:
    file = folder / "reports-0"
    return list(map(Report.decode, file.read_bytes().splitlines())) if file.exists() else []
