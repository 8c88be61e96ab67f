"""Checkpointer: stores a worker's training and resumes from what was stored."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from platform import python_version

from torch.optim.lr_scheduler import LRScheduler

from launch.checkpoints.broadcast import BroadcastCheckpoint
from launch.checkpoints.checkpoint import Checkpoint
from launch.checkpoints.folder import read_manifest
from launch.checkpoints.manifest import BestValidation, Manifest
from launch.checkpoints.restoring import restore
from launch.checkpoints.worker_part import make_part
from launch.checkpoints.writer import CheckpointWriter
from launch.data.split import NodeSplit
from launch.errors import CheckpointError
from launch.gradient_sync.node_channel.requests import RequestClient
from launch.gradient_sync.worker_sync.error_feedback import ErrorFeedback
from launch.local_group.group import LocalGroup
from launch.plan import Plan
from launch.reports import CheckpointSaved, Reporter
from launch.training.step import TrainStep
from launch.use_cases._base import UseCase
from launch.workers.finiteness import check_finite_parameters
from launch.workers.task import Task
from probes import codec

_DROPPED = (
    "the checkpoint has gradients that --wire had not sent yet, and they are dropped: to keep "
    "them, resume on several hosts with the --wire that it was made with"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingWorker:
    """A worker that trains: its task, what it trains, and with whom."""

    task: Task
    plan: Plan
    """The task's, but for what `resolve_plan` takes from a checkpoint."""
    case: UseCase
    step: TrainStep
    group: LocalGroup
    rank: RequestClient | None
    """``None`` where no rank handles requests, as in a trial."""
    reporter: Reporter


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPosition:
    """Progress of a training."""

    epoch: int = 0
    """Epochs done, their validation included."""
    position: int = 0
    """Samples of the next one that all nodes have done."""
    step: int = 0
    best: BestValidation | None = None

    def after(self, samples: int) -> TrainingPosition:
        """Give the progress after one more step."""
        return replace(self, position=self.position + samples, step=self.step + 1)

    def next_epoch(self) -> TrainingPosition:
        """Give the progress when an epoch is done."""
        return replace(self, epoch=self.epoch + 1, position=0)


class Checkpointer:
    """One worker's part of checkpoints.

    Collective: every worker of all nodes builds one before the first step, and calls the methods
    likewise.

    Raises:
        CheckpointError: The folder cannot be used, or this training cannot be stored.
    """

    def __init__(
        self, worker: TrainingWorker, schedules: Sequence[LRScheduler], *, samples: int
    ) -> None:
        self._task = task = worker.task
        self._group = group = worker.group
        self._step = step = worker.step
        self._rank = worker.rank
        self._reporter = worker.reporter
        self._schedules = schedules
        self._samples = samples
        self._started = time.monotonic()
        self._trained_s = 0.0
        self._saved: TrainingPosition | None = None
        self._writer: CheckpointWriter | None = None
        self._error_feedback: ErrorFeedback | None = None
        folder, self._resume_from = task.checkpoint.folder, task.checkpoint.resume_from
        if folder is not None and task.node == 0:  # all nodes have the same state
            make_part(step.describe_state(), schedules)  # raises now where it cannot be stored
            is_resumed = self._resume_from is not None
            self._writer = CheckpointWriter(Path(folder), group, is_resumed=is_resumed)

    def resume(self) -> TrainingPosition:
        """Load the checkpoint that the task names, if any; return its progress.

        Raises:
            CheckpointError: It is one of another training.
        """
        # No other node needs anything of a single one.
        rank = self._rank if len(self._task.split.node_batches) > 1 else None
        if rank is not None:
            is_source = self._task.node == 0
            self._error_feedback = ErrorFeedback(rank, self._group.reducers, is_source=is_source)
        if self._resume_from is None:
            return TrainingPosition()
        with (
            self._readable(Path(self._resume_from), rank) as path,
            Checkpoint(path) as checkpoint,
        ):
            manifest = checkpoint.manifest
            self._check(manifest)
            batch = self._task.split.global_batch
            restore(self._step.describe_state(), self._schedules, checkpoint, global_batch=batch)
            if checkpoint.has_errors:
                self._restore_errors(checkpoint)
            self._group.barrier()
        self._trained_s = manifest.trained_s
        self._saved = TrainingPosition(
            epoch=manifest.epoch,
            position=manifest.position,
            step=manifest.step,
            best=manifest.best,
        )
        return self._saved

    def save(self, progress: TrainingPosition, split: NodeSplit) -> None:
        """Write a checkpoint, unless the last one has the same progress.

        Raises:
            CheckpointError: It cannot be written; on every worker of the node.
            NotFiniteError: A parameter of this worker is NaN or infinite: no checkpoint.
        """
        if self._task.checkpoint.folder is None:
            return
        errors = {} if self._error_feedback is None else self._error_feedback.fold()
        if self._writer is None or progress == self._saved:
            return
        if not self._task.allow_nan:
            part = make_part(self._step.describe_state(), self._schedules)
            check_finite_parameters(part.weights, progress.step)
            self._group.barrier()  # none writes where one has found a NaN
        started = time.perf_counter()
        manifest = self._manifest(progress, split)
        path = self._writer.save(
            lambda: make_part(self._step.describe_state(), self._schedules, errors), manifest
        )
        self._saved = progress
        if self._group.local_rank == 0:
            time_s = time.perf_counter() - started
            self._reporter.send(CheckpointSaved(path=str(path), step=progress.step, time_s=time_s))

    def close(self) -> None:
        """Release the folder for other jobs."""
        if self._writer is not None:
            self._writer.close()

    def _readable(self, path: Path, rank: RequestClient | None) -> AbstractContextManager[Path]:
        if rank is None:
            return nullcontext(path)
        assert self._task.checkpoint_copy is not None
        is_source = self._task.node == 0
        return BroadcastCheckpoint(
            path, Path(self._task.checkpoint_copy), self._group, rank, is_source=is_source
        )

    def _restore_errors(self, checkpoint: Checkpoint) -> None:
        feedback = self._error_feedback
        is_kept = feedback is not None and feedback.restore(checkpoint.errors())
        if not is_kept and self._task.node == 0 and self._group.local_rank == 0:
            self._reporter.warning(_DROPPED)

    def _check(self, manifest: Manifest) -> None:
        if manifest.samples != self._samples:
            raise CheckpointError(
                f"the checkpoint counts {manifest.samples} training samples and the data set has "
                f"{self._samples}: use the data that it was made with"
            )
        most_steps = manifest.epoch * manifest.samples + manifest.position
        if manifest.position > manifest.samples or manifest.step > most_steps:
            raise CheckpointError(
                f"the checkpoint counts {manifest.step} steps and {manifest.position} samples "
                f"after {manifest.epoch} epochs of {manifest.samples}: no training writes that"
            )

    def _manifest(self, progress: TrainingPosition, split: NodeSplit) -> Manifest:
        assert self._task.plan is not None
        return Manifest(
            use_case=self._task.workload.use_case,
            step=progress.step,
            epoch=progress.epoch,
            position=progress.position,
            samples=self._samples,
            seed=self._task.workload.seed,
            global_batch=split.global_batch,
            node_batches=split.node_batches,
            hosts=self._task.hosts,
            plans=(codec.to_builtins(self._task.plan),),
            facts=self._step.facts,
            software={
                "python": python_version(),
                "torch": version("torch"),
                "ddlplan": version("ddlplan"),
            },
            created_at=datetime.now(UTC).isoformat(timespec="seconds"),
            trained_s=self._trained_s + time.monotonic() - self._started,
            best=progress.best,
        )


def resolve_plan(task: Task) -> Plan:
    """Return the plan to build: with the stages of a resumed training, if it had any.

    Measured again, the model may be cut elsewhere, and sums be rounded otherwise.
    """
    assert task.plan is not None
    resume_from = task.checkpoint.resume_from
    if resume_from is None or task.node > 0 or not Path(resume_from).is_dir():
        return task.plan
    manifest = read_manifest(Path(resume_from))
    cut = manifest.facts.get("cut")
    is_same = list(manifest.plans[:1]) == [codec.to_builtins(task.plan)]
    is_measured = task.plan.options.get("cut", "measured") == "measured"
    if not (isinstance(cut, list) and cut and is_same and is_measured):
        return task.plan
    options = {**task.plan.options, "cut": ",".join(map(str, cut))}
    return replace(task.plan, options=options)
