"""Reports of a worker to its node, and of ranks to ``ddlplan``: one JSON document a line."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Protocol

from launch.case_facts import CaseFacts
from launch.noise_scale.estimate import NoiseScale
from probes import codec
from probes.errors import InvalidDocumentError
from probes.sampling.host_sampler import HostUse

_KINDS: dict[str, type[Report]] = {}
"""Every kind of report by its name, as far as its module was imported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Base of all reports; other modules add kinds of their own."""

    def __init_subclass__(cls) -> None:
        # Twice for each kind: dataclass makes it anew to give it slots. The later one counts.
        _KINDS[cls.__name__] = cls

    def encode(self) -> bytes:
        """Give the report as one line."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return codec.encode({"kind": type(self).__name__, **values}) + b"\n"

    @staticmethod
    def decode(line: bytes) -> Report:
        """Read one line that `encode` wrote.

        Raises:
            InvalidDocumentError: It is something else.
        """
        values = codec.decode(line, dict[str, Any], source="report")
        kind = _KINDS.get(str(values.pop("kind", None)))
        if kind is None:
            raise InvalidDocumentError("report: kind is missing, or none that is known here")
        return codec.convert(values, kind, source=kind.__name__, allow_unknown_keys=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataProgress(Report):
    """Data are being made ready."""

    what: str
    done: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Warned(Report):
    """A warning for the user."""

    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Noted(Report):
    """A line about the work, which asks for nothing."""

    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Working(Report):
    """What is going on from now on."""

    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Described(Report):
    """The use case was loaded and its data are ready."""

    facts: CaseFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class PrecisionChecked(Report):
    """A precision was tried on this use case's layers."""

    precision: str
    obstacle: str | None
    """Why it is not used here: ``None`` where its numbers are right and it is faster than fp32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyPrepared(Report):
    """Facts that a strategy found before the first step."""

    facts: Mapping[str, Any]


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
    read_ahead: int = 0
    """Batches that its loader processes had read by then and that were not used yet."""
    peak_device_memory_bytes: int | None = None
    """Most memory that this worker has held of its GPU until now; ``None`` on a CPU, and while the
    next step is computed already."""
    noise: NoiseScale | None = None
    """Gradient noise scale; ``None`` where the step shows nothing new of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepsFinished(Report):
    """The work that the last step of an epoch left to a next one is done."""

    epoch: int
    time_s: float
    """Of that work, after the step."""
    learning_rates: tuple[float, ...] = ()
    """Of the last step, for each group of parameters."""
    noise: NoiseScale | None = None
    """Gradient noise scale after it; ``None`` where nothing was measured."""
    noise_obstacle: str | None = None
    """Why it cannot be measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepsPaused(Report):
    """The worker leaves its steps: it may take any time until the next one."""


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
    """Of each batch's loss times its weight."""
    weight: float
    """Sum of what the losses are means over; the samples, where the use case does not say."""
    metric_sums: Mapping[str, float] = field(default_factory=dict)
    time_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsSaved(Report):
    """The weights are in a file."""

    path: str
    num_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BestWeightsSaved(Report):
    """The weights of the best validation so far are in a file."""

    path: str
    epoch: int
    """From 1."""
    validation_loss: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OnnxSaved(Report):
    """The model is in an ONNX file, which gives what PyTorch does."""

    path: str
    num_bytes: int
    largest_difference: float
    """Between outputs of both, in units of the largest element where that is above 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OnnxFailed(Report):
    """The training is done, and its model could not be written as an ONNX file."""

    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSaved(Report):
    """A checkpoint is on the disk of the first node."""

    path: str
    step: int
    """Steps that the training has made."""
    time_s: float
    """Time that the training waited for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskDone(Report):
    """The worker has done its task, and ends now.

    Without it even exit code 0 is a failure: the user's own code may end the process.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed(Report):
    """The worker has failed. A traceback is in its log."""

    error: str
    """Name of the exception's class."""
    message: str
    users_fault: bool = False
    """Whether the use case or its data is at fault before anything was trained."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharesChanged(Report):
    """A node has become slower or faster, so from now on the nodes take other shares."""

    step: int
    node_batches: tuple[int, ...]
    computed_s: tuple[float, ...]
    """Time that each node took for its part of the last step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientsSynced(Report):
    """Cost of averaging between the nodes, since the last such report."""

    steps: int
    sent_bytes: int
    """By one node."""
    waited_s: float
    """Time in which that node had nothing to do but wait for the sum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSums:
    """Steps that have ended, added up."""

    steps: int
    time_s: float
    input_s: float
    """Part of the time in which the node's first worker waited for its samples."""
    sync_s: float
    """Part of the time in which the node had nothing to do but wait for the sums of gradients."""
    samples: int
    """Of all nodes."""
    loss_sum: float
    """Of each step's loss times its samples."""
    noise_scale: float | None = None
    """Gradient noise scale after the last of them; ``None`` where they show nothing new of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostUsed(Report):
    """What a node used since its last such report, and the steps of that time. Once a second."""

    rank: int
    use: HostUse
    steps: StepSums


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochDone(Report):
    """One epoch of the job: trained and validated."""

    epoch: int
    """From 1."""
    train_loss: float
    """Mean over the steps, by their samples and not by weight, each as the model was by then."""
    validation_loss: float | None
    """``None`` where there are no validation samples."""
    metrics: Mapping[str, float]
    samples: int
    train_time_s: float
    validation_time_s: float
    throughput_samples_per_s: float
    learning_rates: tuple[float, ...] = ()
    """Of the last step, for each group of the optimizer's parameters; empty without a step."""
    global_batch: int | None = None
    elapsed_s: float | None = None
    """Since the run began."""
    noise: NoiseScale | None = None
    """Gradient noise scale at its end; ``None`` where nothing was measured."""
    noise_obstacle: str | None = None
    """Why it cannot be measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFailed(Report):
    """The job ends because a worker failed: the root cause."""

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
    """Whether the node, or its network, is lost."""
    is_hang: bool = False
    """Whether the worker runs, and makes no steps."""
    is_not_finite: bool = False
    """Whether it stopped because a loss or a parameter is NaN or infinite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndRequested(Report):
    """The ranks have ended in order on a signal; who started them knows whether it sent one."""

    signal: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RanksJoined(Report):
    """MPI has joined the ranks of a job."""

    names: tuple[str, ...]
    """Of their hosts, by rank, as each calls itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alive(Report):
    """The job runs. Sent every other second."""


def make_node_failure(node: str, message: str, *, is_consequence: bool = False) -> JobFailed:
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


def make_lost_host_failure(node: str, message: str) -> JobFailed:
    """Make the report of a node that does not answer."""
    return replace(make_node_failure(node, message, is_consequence=True), is_lost_host=True)


class PreparationReporter(Protocol):
    """Receives the progress of data preparation."""

    def progress(self, done: int, total: int, what: str) -> None:
        """Report that ``done`` of ``total`` pieces of the work called ``what`` are finished."""

    def warning(self, message: str) -> None:
        """Report what does not stop the work, in one line with its remedy."""


class Reporter:
    """A worker's end of the pipe, and the `PreparationReporter` of its use case."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def send(self, report: Report) -> None:
        """Write one report whole, so that reports of one worker never mix.

        A closed pipe is no error: the node ends its workers itself.
        """
        line = memoryview(report.encode())
        try:
            while line:
                line = line[os.write(self._descriptor, line) :]
        except BrokenPipeError:
            return

    def progress(self, done: int, total: int, what: str) -> None:
        """Report how far the data are."""
        self.send(DataProgress(what=what, done=done, total=total))

    def warning(self, message: str) -> None:
        """Report a warning for the user."""
        self.send(Warned(message=message))
