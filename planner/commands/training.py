"""How does a training show itself? A bar while it runs, a line an epoch, and how fast it was."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launch.job import Job
from launch.workers.reports import CheckpointSaved, EpochDone, Report, SharesChanged, Warned
from planner.errors import TrainingFailedError
from planner.output import Output
from planner.placement import Placement
from planner.report.live import TrainingBar
from planner.report.network import NetworkRecord, shares_line
from planner.running import LaunchOutcome, run_job

RUNS = Path("runs")
_NOTABLE_PERCENT = 10
_TELLING_S = 2.0
"""A shorter epoch says nothing of a training's speed: its first steps load what later ones have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """A training that came to its end."""

    outcome: LaunchOutcome
    network: NetworkRecord

    host: str | None = None
    """Where its files are, but for the metrics; ``None`` for this machine."""

    @property
    def throughput_samples_per_s(self) -> float | None:
        """Of the last epoch that had steps; ``None`` where none had: all was done before."""
        trained = [epoch for epoch in self.outcome.epochs if epoch.samples]
        return trained[-1].throughput_samples_per_s if trained else None


def train(job: Job, placement: Placement, out: Output) -> Training:
    """Run a job and show how it gets on."""
    network = NetworkRecord()
    hosts = [node.host for node in job.nodes]
    kept = _Kept(job.keeping.resume, None if placement.starts_here else hosts[0], out)
    with kept.telling_how_to_go_on(), TrainingBar(out.errors, job.epochs) as bar:
        bar.wait("starting mpirun and PyTorch")

        def on_report(report: Report) -> None:
            bar(report)
            network.add(report)
            if isinstance(report, Warned):
                out.warn(report.message)
            if isinstance(report, SharesChanged):
                out.note(shares_line(report, hosts))
            if isinstance(report, EpochDone):
                out.say(_epoch_line(report, job.epochs))
            if isinstance(report, CheckpointSaved):
                kept.add(report.path)

        outcome = run_job(job, RUNS, placement=placement, on_report=on_report)
    return Training(outcome=outcome, network=network, host=kept.host)


class _Kept:
    """Where a training can go on, should it not come to its end.

    Args:
        path: The checkpoint that it goes on from itself, if any.
        host: Where checkpoints are; ``None`` for this machine.
        out: Where to say it.
    """

    def __init__(self, path: str | None, host: str | None, out: Output) -> None:
        self.host = host
        self._out = out
        self._path: Path | None = None
        if path is not None:
            self.add(path)

    def add(self, path: str) -> None:
        """Take note of a newer checkpoint."""
        self._path = Path(path)
        self._out.keep({"checkpoint": path, "host": self.host})

    @contextmanager
    def telling_how_to_go_on(self) -> Iterator[None]:
        """Say where the training can go on, if a signal or an accident ends the block."""
        try:
            yield
        except TrainingFailedError as error:
            if error.is_accident:
                self._tell()
                error.checkpoint = self._path
            raise
        except Exception:
            raise
        except BaseException:
            self._tell()
            raise

    def _tell(self) -> None:
        if self._path is not None:
            there = "" if self.host is None else " there"
            self._out.note(
                f"kept up to {_shown(self._path, self.host)}: go on{there} with "
                f"--checkpoint {_relative(self._path.parent)} --resume"
            )


def say_trained(
    training: Training, expected: float | None, out: Output, *, verb: str, remedy: str
) -> None:
    """Say how a job went.

    Args:
        training: What came of it.
        expected: Samples per second that the evidence promised; ``None`` where it says nothing.
        out: Where to say it.
        verb: What the evidence did: ``expected`` or ``predicted``.
        remedy: What to do about a training that was much slower.
    """
    outcome, host = training.outcome, training.host
    trained = [epoch for epoch in outcome.epochs if epoch.samples]
    lost = [epoch.epoch for epoch in trained if not math.isfinite(epoch.train_loss)]
    if lost:
        out.warn(
            f"the training loss of epoch {lost[0]} is no number (NaN or infinite): lower the "
            "learning rate in the use case's optimizer, or look for such values in its data"
        )
    if not outcome.epochs:
        out.note("all epochs were done before: the weights are those of the checkpoint")
    measured = training.throughput_samples_per_s
    if expected is not None and measured is not None:
        off = 100 * (measured / expected - 1)
        out.say(f"{verb:<10} {expected:.1f} samples/s, measured {measured:.1f} ({off:+.1f} %)")
        if off < -_NOTABLE_PERCENT and trained[-1].train_time_s >= _TELLING_S:
            out.warn(f"training was {-off:.0f} % slower than {remedy}")
    if line := training.network.line():
        out.say(f"network    {line}")
    out.say(f"weights    {_shown(outcome.weights, host)}")
    if outcome.checkpoint is not None:
        out.say(f"checkpoint {_shown(outcome.checkpoint, host)}")
    logs = "beside it" if host is None else f"in {_shown(outcome.run_directory, host)}"
    out.say(f"metrics    {_relative(outcome.run_directory / 'metrics.jsonl')}, logs {logs}")


def outcome_json(training: Training, expected: float | None) -> dict[str, Any]:
    """Give what a job left as plain values that JSON can hold."""
    outcome = training.outcome
    return {
        "run_directory": str(outcome.run_directory),
        "host": training.host,
        "weights": None if outcome.weights is None else str(outcome.weights),
        "checkpoint": None if outcome.checkpoint is None else str(outcome.checkpoint),
        "epochs": [epoch.to_json() for epoch in outcome.epochs],
        "expected_throughput_samples_per_s": expected,
        "measured_throughput_samples_per_s": training.throughput_samples_per_s,
        "network": training.network.to_json(),
    }


def _epoch_line(epoch: EpochDone, epochs: int) -> str:
    """Describe an epoch; one that a checkpoint had at its end was only validated."""
    parts = [f"epoch {epoch.epoch}/{epochs}"]
    if epoch.samples:
        parts.append(f"loss {epoch.train_loss:.3f}")
    if epoch.validation_loss is not None:
        parts.append(f"validation loss {epoch.validation_loss:.3f}")
    parts += [f"{name} {value:.3f}" for name, value in epoch.metrics.items()]
    if epoch.samples:
        parts.append(f"{epoch.throughput_samples_per_s:.1f} samples/s")
    return "  ".join(parts)


def _shown(path: Path | None, host: str | None) -> str:
    """Name a file as a person finds it: from the working folder, or on its host."""
    if path is None:
        return "none were saved"
    return _relative(path) if host is None else f"{host}:{path}"


def _relative(path: Path) -> str:
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)
