"""What does a worker tell its node? One JSON document a line, over a pipe of its own."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

_KINDS: dict[str, type[Report]] = {}
"""Every kind of report by its name, as far as its module was imported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Base of what a worker reports; whoever has more to say adds kinds of its own."""

    def __init_subclass__(cls) -> None:
        # Twice for each kind: dataclass makes it anew to give it slots. The later one counts.
        _KINDS[cls.__name__] = cls

    def encode(self) -> bytes:
        """Give the report as one line."""
        document = {"kind": type(self).__name__, **asdict(self)}
        return json.dumps(document).encode() + b"\n"

    @staticmethod
    def decode(line: bytes) -> Report:
        """Read one line that `encode` wrote."""
        values = json.loads(line)
        return _KINDS[values.pop("kind")](**values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress(Report):
    """Data are being made ready."""

    what: str
    done: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Warned(Report):
    """Something the user should know."""

    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Described(Report):
    """The use case was loaded and its data are ready."""

    facts: Mapping[str, Any]
    """`CaseFacts.to_json`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrecisionChecked(Report):
    """A precision was tried on this use case's layers."""

    precision: str
    obstacle: str | None
    """Why it is no good here: ``None`` where its numbers are right and it is faster than fp32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared(Report):
    """What a strategy found out before the first step, where it had to."""

    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientsLaid(Report):
    """Where a worker will leave its gradients, in the memory that it shares with its rank."""

    board_offset: int
    participants: int
    parameters: int
    held: Sequence[Mapping[str, Any]]
    """`launch.exchange.forms.Held.to_json` of each."""
    training_samples: int
    """That this node has found."""
    validation_samples: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDone(Report):
    """One step, from one worker's last step to this one: input, computing, averaging, waiting."""

    step: int
    epoch: int
    time_s: float
    samples: int
    loss: float
    input_s: float = 0.0
    """Part of the time in which this worker waited for its samples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepsFinished(Report):
    """What the last step of an epoch left to a next one is done."""

    epoch: int
    time_s: float
    """It took, after that step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoStep(Report):
    """What the worker does from now until its next step is none: it may take any time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled(Report):
    """The model is compiled: what a plan with ``compile`` pays once in each training."""

    time_s: float
    """By how much the first step, which compiles, took longer than the second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Validated(Report):
    """One worker's part of the validation after an epoch, as sums over its samples."""

    epoch: int
    samples: int
    loss_sum: float
    metric_sums: Mapping[str, float] = field(default_factory=dict)
    time_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsSaved(Report):
    """The weights are in a file."""

    path: str
    num_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSaved(Report):
    """A checkpoint is on the disk of the first node."""

    path: str
    step: int
    """Steps that the training has made."""
    time_s: float
    """That the training stood still for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskDone(Report):
    """The worker has done all that it was told, and ends now.

    Without it even exit code 0 is a failure: the user's own code may end the process.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed(Report):
    """The worker gives up. A traceback is in its log."""

    error: str
    """Name of the exception's class."""
    message: str
    users_fault: bool = False
    """Whether the use case or its data is at fault before anything was trained."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharesChanged(Report):
    """A node has become slower or faster, so from now on the nodes take other shares."""

    step: int
    node_batches: Sequence[int]
    computed_s: Sequence[float]
    """Time that each node took for its part of the last step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchanged(Report):
    """What averaging between the nodes took, since the last such report."""

    steps: int
    sent_bytes: int
    """By one node."""
    waited_s: float
    """Time in which that node had nothing to do but wait for the sum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochDone(Report):
    """One epoch of the job: trained, and judged on the validation samples."""

    epoch: int
    """From 1."""
    train_loss: float
    """Mean over the samples, each as the model was when it came."""
    validation_loss: float | None
    """``None`` where there are no validation samples."""
    metrics: Mapping[str, float]
    samples: int
    train_time_s: float
    validation_time_s: float
    throughput_samples_per_s: float

    def to_json(self) -> dict[str, Any]:
        """Give the values for people's programs: NaN and infinity, which are no JSON, are null."""
        values = asdict(self)
        values["metrics"] = {name: _finite(value) for name, value in self.metrics.items()}
        return values | {
            "train_loss": _finite(self.train_loss),
            "validation_loss": _finite(self.validation_loss),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFailed(Report):
    """The job ends because a worker failed: the first cause."""

    node: str
    worker: int
    workers: int
    message: str
    log: str
    log_tail: str
    signal: int | None = None
    """The signal that ended the worker, if one did."""
    users_fault: bool = False
    """As in `Failed`."""
    is_consequence: bool = False
    """Whether something else must have happened before, which this node did not see."""
    is_lost_host: bool = False
    """Whether the node, or its network, is gone."""
    is_hang: bool = False
    """Whether the worker lives, and makes no steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndWished(Report):
    """The ranks were asked to end by a signal, not by who started them, and have ended in order."""

    signal: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Alive(Report):
    """The job goes on. It is said every other second, to whoever waits for the next report."""


def node_failed(node: str, message: str, *, is_consequence: bool = False) -> JobFailed:
    """Make the report of a failure that is no worker's."""
    return JobFailed(
        node=node,
        worker=0,
        workers=0,
        message=message,
        log="",
        log_tail="",
        is_consequence=is_consequence,
    )


def lost_host(node: str, message: str) -> JobFailed:
    """Make the report of a node that does not answer; why, others may know."""
    return replace(node_failed(node, message, is_consequence=True), is_lost_host=True)


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


class Reporter:
    """A worker's end of the pipe."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def send(self, report: Report) -> None:
        """Write one report whole, so that reports of one worker never mix.

        A node that no longer listens is no reason to fail here: it ends its workers itself.
        """
        line = memoryview(report.encode())
        try:
            while line:
                line = line[os.write(self._descriptor, line) :]
        except BrokenPipeError:
            return

    def progress(self, done: int, total: int, what: str) -> None:
        """Say how far the data are; the shape that a use case's ``prepare`` expects."""
        self.send(Progress(what=what, done=done, total=total))

    def warning(self, message: str) -> None:
        """Pass on something the user should know."""
        self.send(Warned(message=message))
