"""Display of a training while it runs, and of what it left."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from shlex import quote
from typing import Any

from launch.reports import (
    BestWeightsSaved,
    CheckpointSaved,
    EpochDone,
    OnnxSaved,
    Report,
    SharesChanged,
)
from planner.api.launching import LaunchResult
from planner.jobs.prepared_launch import PreparedLaunch
from planner.jobs.training import NetworkUse, TrainingStopped
from planner.quantities import format_bytes, format_count
from planner.report.live import LiveDisplay
from planner.report.output import Output
from planner.report.plans import GENERATED
from planner.report.runs import noise_span
from probes import codec
from probes.timing import Interval

_NOTABLE_PERCENT = 10
_TELLING_S = 2.0
"""A shorter epoch says nothing of a training's speed: its first steps load what later ones have."""


class TrainingDisplay(LiveDisplay):
    """Shows a training as a `LiveDisplay`, and each epoch as a line of the answer."""

    def __init__(self, out: Output, hosts: tuple[str, ...] = (), *, epochs: int) -> None:
        super().__init__(out, hosts, epochs=epochs)
        self._prepared: PreparedLaunch | None = None
        self._said = set[str]()

    def __call__(self, report: Report, host: str | None = None, /) -> None:
        super().__call__(report, host)
        match report:
            case PreparedLaunch():
                self._prepared = report
                if (path := report.job.checkpoint.resume_from) is not None:
                    self._store_checkpoint(path)
            case CheckpointSaved(path=path):
                self._store_checkpoint(path)
            case SharesChanged() if self._prepared is not None:
                hosts = [node.host for node in self._prepared.job.nodes]
                self._out.note(_format_shares_change(report, hosts))
            case EpochDone():
                self._out.write_line(_epoch_line(report, self._epochs))
                doubt = _doubt_of_noise(report)
                if doubt is not None and doubt not in self._said:
                    self._said.add(doubt)
                    self._out.note(f"noise scale {doubt}")
            case TrainingStopped():
                for line in _what_is_left(report):
                    self._out.note(line)

    def _store_checkpoint(self, path: str) -> None:
        """Give the last checkpoint to the JSON of a command that fails."""
        host = None if self._prepared is None else self._prepared.host
        self._out.set_partial_data({"checkpoint": path, "host": host})


def print_training(
    result: LaunchResult,
    expected: float | None,
    out: Output,
    *,
    verb: str,
    remedy: str,
    interval: Interval | None = None,
) -> None:
    """Write how a training went.

    Beside it stands the rate that the evidence has ``expected`` or ``predicted``, which is the
    verb, where it says anything; see `compare_rates`.
    """
    outcome, host = result.outcome, result.prepared.host
    trained = [epoch for epoch in outcome.epochs if epoch.samples]
    lost = [epoch.epoch for epoch in trained if not math.isfinite(epoch.train_loss)]
    if lost:
        out.warn(
            f"the training loss of epoch {lost[0]} is no number (NaN or infinite): lower the "
            "learning rate in the use case's optimizer, or look for such values in its data"
        )
    if not outcome.epochs:
        out.note("all epochs were done before: the weights are those of the checkpoint")
    measured = outcome.throughput_samples_per_s
    if expected is not None and measured is not None:
        time_s = trained[-1].train_time_s
        shown = compare_rates(
            measured, expected, interval, time_s=time_s, remedy=remedy, warn=out.warn
        )
        out.write_fact(verb, shown)
    if outcome.is_generated:
        out.write_fact("data", GENERATED)
    if line := _network_line(outcome.network):
        out.write_fact("network", line)
    out.write_fact("weights", _shown(outcome.weights, host))
    if (best := outcome.best) is not None:
        out.write_fact("best", _describe_best(best, host))
    if isinstance(outcome.onnx, OnnxSaved):
        out.write_fact("onnx", describe_onnx(outcome.onnx, host))
    if outcome.checkpoint is not None:
        out.write_fact("checkpoint", _shown(outcome.checkpoint, host))
    logs = "beside it" if host is None else f"in {_shown(outcome.run_directory, host)}"
    out.write_fact("metrics", f"{_relative(outcome.run_directory / 'metrics.jsonl')}, logs {logs}")


def compare_rates(
    measured: float,
    expected: float,
    interval: Interval | None,
    *,
    time_s: float,
    remedy: str,
    warn: Callable[[str], None],
) -> str:
    """Say how fast a training was beside what was expected; warn where it was much slower.

    Args:
        measured: In samples/s.
        expected: Likewise.
        interval: That holds the rate of 95 % of trainings, drift of the machine included; ``None``
            where it is not known.
        time_s: What was measured: a short time is not told of.
        remedy: What to do about a training that was much slower, after "slower than".
        warn: Takes the warning.
    """
    off = 100 * (measured / expected - 1)
    span = "" if interval is None else f" ({interval.low:.1f} to {interval.high:.1f})"
    is_slow = off < -_NOTABLE_PERCENT and (interval is None or measured < interval.low)
    if is_slow and time_s >= _TELLING_S:
        warn(f"training was {-off:.0f} % slower than {remedy}")
    return f"{expected:.1f} samples/s{span}, measured {measured:.1f} ({off:+.1f} %)"


def _describe_best(best: BestWeightsSaved, host: str | None) -> str:
    """Name the file of the best weights, and what makes them so."""
    path = _shown(Path(best.path), host)
    return f"{path} (epoch {best.epoch}, validation loss {best.validation_loss:.3f})"


def describe_onnx(saved: OnnxSaved, host: str | None) -> str:
    """Name an ONNX file, its size, and how near it is to PyTorch, in the units of the report."""
    path, size = _shown(Path(saved.path), host), format_bytes(saved.num_bytes)
    return (
        f"{path} ({size}, outputs within {saved.largest_difference:.1e} of PyTorch's, divided by "
        "the largest element where that is above 1)"
    )


def outcome_json(result: LaunchResult, expected: float | None) -> dict[str, Any]:
    """Give what a job left as plain values that JSON can hold."""
    outcome = result.outcome
    return {
        "run_directory": str(outcome.run_directory),
        "is_generated": outcome.is_generated,
        "host": result.prepared.host,
        "weights": None if outcome.weights is None else str(outcome.weights),
        "checkpoint": None if outcome.checkpoint is None else str(outcome.checkpoint),
        "best_weights": codec.to_builtins(outcome.best),
        "onnx": codec.to_builtins(outcome.onnx) if isinstance(outcome.onnx, OnnxSaved) else None,
        "epochs": codec.to_builtins(outcome.epochs, null_for_nan=True),
        "expected_throughput_samples_per_s": expected,
        "measured_throughput_samples_per_s": outcome.throughput_samples_per_s,
        "network": _network_json(outcome.network),
    }


def _what_is_left(stopped: TrainingStopped) -> Iterator[str]:
    """Say what a training leaves that did not come to its end; nothing of one without a step."""
    left, host = stopped.left, stopped.host
    if left.is_generated and left.epochs:
        yield f"data were {GENERATED}"
    if left.best is not None:
        yield f"the best weights are in {_describe_best(left.best, host)}"
    if (path := left.checkpoint) is not None:
        there = "" if host is None else " there"
        yield (
            f"the last checkpoint is {_shown(path, host)}: go on{there} with "
            f"--checkpoint {quote(_relative(path.parent))} --resume"
        )
    elif left.weights is not None:
        yield (
            f"the weights of the last step are in {_shown(left.weights, host)}; the state of the "
            "optimizer is lost, so no training can go on from here: --checkpoint keeps it"
        )
    elif left.steps:
        steps = format_count(left.steps, "step")
        epochs = format_count(len(left.epochs), "whole epoch")
        yield (
            f"{steps} {'is' if left.steps == 1 else 'are'} lost, {epochs} among them: neither "
            "weights nor a checkpoint were stored; --checkpoint keeps what is done"
        )


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
    if epoch.noise is not None:
        parts.append(f"noise scale {noise_span(epoch.noise)}")
    return "  ".join(parts)


def _doubt_of_noise(epoch: EpochDone) -> str | None:
    """Say why an epoch has no noise scale, or one with a question mark."""
    if epoch.noise_obstacle is not None:
        return f"not measured: {epoch.noise_obstacle}"
    caveat = None if epoch.noise is None else epoch.noise.caveat
    return None if caveat is None else f"not reliable with {caveat}"


def _shown(path: Path | None, host: str | None) -> str:
    """Name a file as a person finds it: from the working folder, or on its host."""
    if path is None:
        return "none were saved"
    return _relative(path) if host is None else f"{host}:{path}"


def _relative(path: Path) -> str:
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def _network_line(network: NetworkUse) -> str | None:
    """Give the statistics as a line; ``None`` where nothing went over a network."""
    if not network.steps:
        return None
    sent = format_bytes(network.sent_bytes // network.steps)
    share = 100 * network.waited_s / network.steps_s if network.steps_s else 0.0
    return f"{sent} sent by each host in a step, {share:.1f} % of the time waited for the sum"


def _network_json(network: NetworkUse) -> dict[str, Any] | None:
    """Give the statistics as plain values for JSON; ``None`` where there are none."""
    if not network.steps:
        return None
    return {
        "steps": network.steps,
        "sent_bytes_per_step": network.sent_bytes / network.steps,
        "waited_s_per_step": network.waited_s / network.steps,
    }


def _format_shares_change(changed: SharesChanged, hosts: Sequence[str]) -> str:
    """Describe the shares that the nodes take from now on."""
    shares = ", ".join(
        f"{host} {batch}" for host, batch in zip(hosts, changed.node_batches, strict=True)
    )
    return f"step {changed.step}: a host's speed has changed; from here on {shares} samples a step"
