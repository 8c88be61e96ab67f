"""Recorder of a training: writes its row, and the use of its hosts, while it runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace

from launch.reports import (
    CheckpointSaved,
    Described,
    EpochDone,
    HostUsed,
    Report,
    StepDone,
    Warned,
    WeightsSaved,
)
from planner.errors import CancelledError, StoreLockedError
from planner.jobs.training import RunBegun
from planner.plans.stored_plan import utc_now
from planner.records.training_record import TrainingRecord, TrainingStatus
from planner.records.usage_record import HostUsage
from planner.store import Store
from planner.trainings.series import UsageSeries
from planner.trials.reports import Listener
from probes.sampling.pace import Pace

_WRITE_EVERY_S, _EPOCH_EVERY_S, _WRITE_PART = 2.0, 0.5, 0.01
"""An epoch's end is written at once, but for epochs that are shorter than half a second."""

_MOST_S = 10.0
"""The first write takes a second on a busy machine, as it opens the database: after a hundred such
seconds the row would say that no epoch has ended, while the job has told of fifteen."""

_USAGE_EVERY_S, _USAGE_PART = 4.0, 0.001
"""The part is one of a core: it takes milliseconds to write a long series as JSON."""

_LOCK_TIMEOUT_S = 0.25
"""Reports wait meanwhile, and what cannot be written now is written with the next."""

_END_LOCK_TIMEOUT_S = 10.0
_MOST_TURNS = 4
"""Several hosts take turns: at most a quarter of them is written at a time."""

_MOST_ERROR = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRecorded(Report):
    """The database has a row of the training, from its first step on."""

    training_id: int


class TrainingRecorder:
    """Row of a training, from its first step on. What cannot be written now is left out.

    It opens the database when there is something to write, and closes it in `end`.

    Args:
        db: Database.
        record: The training as it begins; its run directory comes with a report.
        on_recorded: Told its number, once the database has given it one.
        warn: Takes what the user should hear: that the training is not recorded.
    """

    def __init__(
        self,
        db: str,
        record: TrainingRecord,
        on_recorded: Callable[[int], None],
        warn: Callable[[str], None],
    ) -> None:
        self._db = db
        self._record = record
        self._on_recorded = on_recorded
        self._warn = warn
        self._began = time.monotonic()
        self._steps = 0
        self._epochs: list[EpochDone] = []
        self._has_trained = False
        self._has_new_epoch = False
        self._has_warned = False
        clock = time.monotonic  # it waits for the disk and for others
        self._pace = Pace(_WRITE_EVERY_S, _WRITE_PART, most_s=_MOST_S, cost_clock=clock)
        self._epoch_pace = Pace(_EPOCH_EVERY_S, _WRITE_PART, most_s=_MOST_S, cost_clock=clock)
        self._turns, self._turn = min(_MOST_TURNS, len(record.hosts)), 0
        self._usage_pace = Pace(_USAGE_EVERY_S / self._turns, _USAGE_PART)
        self._series = [
            UsageSeries(is_first=rank == 0, has_syncs=len(record.hosts) > 1)
            for rank in range(len(record.hosts))
        ]
        self._opened = ExitStack()
        self._store: Store | None = None

    def add(self, report: Report) -> None:
        """Take a report of the training, and write what is known where that is due."""
        match report:
            case RunBegun(run_directory=directory):
                self._record = replace(self._record, run_directory=directory)
            case HostUsed(rank=rank) if rank < len(self._series):
                self._series[rank].add(time.monotonic() - self._began, report)
            case Described(facts=facts):
                self._record = replace(
                    self._record,
                    is_generated=facts.is_generated,
                    use_case_digest=facts.digest,
                )
            case StepDone():
                self._has_trained = True
                self._steps += 1
            case EpochDone():
                self._has_trained = self._has_new_epoch = True
                self._epochs.append(report)
            case CheckpointSaved(path=path):
                self._record = replace(self._record, checkpoint=path)
            case WeightsSaved(path=path):
                self._record = replace(self._record, weights=path)
        is_due = self._pace.is_due or (self._has_new_epoch and self._epoch_pace.is_due)
        if self._has_trained and is_due:
            with self._pace.working(), self._epoch_pace.working():
                self._write(_LOCK_TIMEOUT_S, self._next_usage())

    def end(self, error: BaseException | None) -> None:
        """Write how the training ended. Waits for a locked database, in bounded time."""
        try:
            if self._has_trained:
                self._close()
                usage, (state, message) = self._usage(), _end_state(error)
                self._write(_END_LOCK_TIMEOUT_S, usage, state=state, error=message)
        finally:
            self._close()

    def _write(
        self,
        lock_timeout_s: float,
        usage: Mapping[str, HostUsage],
        *,
        state: TrainingStatus | None = None,
        error: str | None = None,
    ) -> None:
        was_recorded = self._record.id is not None
        try:
            store = self._open(lock_timeout_s)
            if not was_recorded:
                self._record = store.trainings.add(replace(self._record, heartbeat_at=utc_now()))
            assert self._record.id is not None  # the store has given it
            store.trainings.update(
                self._record.id,
                epochs_done=self._epochs,
                steps=self._steps,
                checkpoint=self._record.checkpoint,
                weights=self._record.weights,
                usage_series=usage,
                state=state,
                error=error,
            )
            self._has_new_epoch = False
        except Exception as problem:  # noqa: BLE001 - whatever it is, the training goes on
            self._close()
            is_told = state is not None or not isinstance(problem, StoreLockedError)
            if is_told and not self._has_warned:
                self._has_warned = True
                self._warn(f"this training is not fully recorded: {problem}")
        if not was_recorded and self._record.id is not None:
            self._on_recorded(self._record.id)

    def _next_usage(self) -> dict[str, HostUsage]:
        """Give the use of the hosts whose turn it is to be written; empty where none is due."""
        if not self._usage_pace.is_due:
            return {}
        with self._usage_pace.working():
            turn, self._turn = self._turn, (self._turn + 1) % self._turns
            return self._usage(turn, self._turns)

    def _usage(self, first: int = 0, step: int = 1) -> dict[str, HostUsage]:
        """Give what hosts used: all of them, or every ``step``-th from the rank ``first`` on."""
        ranks = range(first, len(self._series), step)
        return {self._record.hosts[rank].host: self._series[rank].values() for rank in ranks}

    def _open(self, lock_timeout_s: float) -> Store:
        if self._store is None:
            opened = Store.open(self._db, create=False, lock_timeout_s=lock_timeout_s)
            self._store = self._opened.enter_context(opened)
        return self._store

    def _close(self) -> None:
        self._store = None
        with suppress(Exception):
            self._opened.close()


@contextmanager
def recording(db: str, record: TrainingRecord, listener: Listener) -> Iterator[Listener]:
    """Give a listener that records a training as well; the end of the block is its end.

    The other one receives all reports, and `TrainingRecorded`.
    """
    recorder = TrainingRecorder(
        db,
        record,
        on_recorded=lambda number: listener(TrainingRecorded(training_id=number)),
        warn=lambda message: listener(Warned(message=message)),
    )

    def on_report(report: Report, host: str | None = None, /) -> None:
        recorder.add(report)
        listener(report, host)

    try:
        yield on_report
    except BaseException as error:
        recorder.end(error)
        raise
    recorder.end(None)


def _end_state(error: BaseException | None) -> tuple[TrainingStatus, str | None]:
    if error is None:
        return TrainingStatus.DONE, None
    if isinstance(error, CancelledError) or not isinstance(error, Exception):
        return TrainingStatus.CANCELLED, None
    return TrainingStatus.FAILED, " ".join(str(error).split())[:_MOST_ERROR]
