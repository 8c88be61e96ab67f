"""How does a training show itself? A bar while it runs, a line an epoch, and how fast it was."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launch.job import Job
from launch.workers.reports import EpochDone, Report, SharesChanged, Warned
from planner.output import Output
from planner.placement import Placement
from planner.report.live import TrainingBar
from planner.report.network import NetworkRecord, shares_line
from planner.running import LaunchOutcome, run_job

RUNS = Path("runs")
_NOTABLE_PERCENT = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """A training that came to its end."""

    outcome: LaunchOutcome
    network: NetworkRecord


def train(job: Job, placement: Placement, out: Output) -> Training:
    """Run a job and show how it gets on."""
    network = NetworkRecord()
    hosts = [node.host for node in job.nodes]
    with TrainingBar(out.errors, job.epochs) as bar:
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

        outcome = run_job(job, RUNS, placement=placement, on_report=on_report)
    return Training(outcome=outcome, network=network)


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
    outcome = training.outcome
    trained = [epoch for epoch in outcome.epochs if epoch.samples]
    lost = [epoch.epoch for epoch in trained if not math.isfinite(epoch.train_loss)]
    if lost:
        out.warn(
            f"the training loss of epoch {lost[0]} is no number (NaN or infinite): lower the "
            "learning rate in the use case's optimizer, or look for such values in its data"
        )
    if expected is not None:
        last = outcome.epochs[-1].throughput_samples_per_s
        off = 100 * (last / expected - 1)
        out.say(f"{verb:<10} {expected:.1f} samples/s, measured {last:.1f} ({off:+.1f} %)")
        if off < -_NOTABLE_PERCENT:
            out.warn(f"training was {-off:.0f} % slower than {remedy}")
    if line := training.network.line():
        out.say(f"network    {line}")
    out.say(f"weights    {_relative(outcome.weights)}")
    if outcome.checkpoint is not None:
        out.say(f"checkpoint {_relative(outcome.checkpoint)}")
    out.say(f"metrics    {_relative(outcome.run_directory / 'metrics.jsonl')}, logs beside it")


def outcome_json(training: Training, expected: float | None) -> dict[str, Any]:
    """Give what a job left as plain values that JSON can hold."""
    outcome = training.outcome
    measured = outcome.epochs[-1].throughput_samples_per_s if outcome.epochs else None
    return {
        "run_directory": str(outcome.run_directory),
        "weights": None if outcome.weights is None else str(outcome.weights),
        "checkpoint": None if outcome.checkpoint is None else str(outcome.checkpoint),
        "epochs": [epoch.to_json() for epoch in outcome.epochs],
        "expected_throughput_samples_per_s": expected,
        "measured_throughput_samples_per_s": measured,
        "network": training.network.to_json(),
    }


def _epoch_line(epoch: EpochDone, epochs: int) -> str:
    parts = [f"epoch {epoch.epoch}/{epochs}", f"loss {epoch.train_loss:.3f}"]
    if epoch.validation_loss is not None:
        parts.append(f"validation loss {epoch.validation_loss:.3f}")
    parts += [f"{name} {value:.3f}" for name, value in epoch.metrics.items()]
    parts.append(f"{epoch.throughput_samples_per_s:.1f} samples/s")
    return "  ".join(parts)


def _relative(path: Path | None) -> str:
    if path is None:
        return "none were saved"
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)
