"""Row of a script's launch in the database: its beginning, its signs of life, its end."""

from __future__ import annotations

import math
import platform
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from launch.reports import EpochDone, Warned
from launch.scripts.step_counter import CountedSteps
from launch.system.process_identity import ProcessIdentity
from planner.errors import PlannerError
from planner.plans.stored_plan import utc_now
from planner.records.training_record import TrainingHost, TrainingRecord, TrainingStatus
from planner.store import Store, find_hazard
from planner.trainings.recorder import TrainingRecorded
from planner.trials.reports import Listener

_BEAT_S = 10.0
"""Between two signs of life in the database."""


def rate_of(counted: CountedSteps, batch: int) -> float:
    """Give samples/s."""
    return counted.counted * counted.whole_share * batch / counted.time_s


def begin_row(
    name: str, hosts: Sequence[TrainingHost], samples_per_s: float, db: str, listener: Listener
) -> int | None:
    """Add a training; give its number, ``None`` where the database cannot be written."""
    record = TrainingRecord(
        started_at=utc_now(),
        use_case=name,
        data=None,
        seed=0,
        epochs=1,
        hosts=tuple(hosts),
        expected_samples_per_s=samples_per_s,
        machine=platform.node(),
        run_directory=str(Path.cwd()),
        process=ProcessIdentity.of(),
        heartbeat_at=utc_now(),
    )
    try:
        if (hazard := find_hazard(db)) is not None:
            listener(Warned(message=hazard))
        with Store.open(db, create=False) as store:
            training_id = store.trainings.add(record).id
    except PlannerError as error:
        listener(Warned(message=f"this training is not recorded: {error}"))
        return None
    if training_id is not None:
        listener(TrainingRecorded(training_id=training_id))
    return training_id


@contextmanager
def heartbeat(training_id: int | None, db: str) -> Iterator[None]:
    """Let other machines know, while the block runs, that the training does."""
    is_over = threading.Event()

    def beat() -> None:
        # The main thread sleeps in calls that a signal has to wake it from.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        while training_id is not None and not is_over.wait(_BEAT_S):
            with suppress(PlannerError), Store.open(db, create=False) as store:
                store.trainings.update(training_id)

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def end_row(
    training_id: int | None,
    db: str,
    listener: Listener,
    state: TrainingStatus,
    error: str | None,
    counted: CountedSteps | None,
    batch: int,
) -> None:
    """Write how a training ended that has a row, and its steps of ``batch`` samples."""
    if training_id is None:
        return
    done = None if counted is None else (_whole_epoch(counted, batch),)
    steps = None if counted is None else counted.made
    try:
        with Store.open(db, create=False) as store:
            store.trainings.update(
                training_id, epochs_done=done, steps=steps, state=state, error=error
            )
    except PlannerError as problem:
        listener(Warned(message=f"this training is not fully recorded: {problem}"))


def _whole_epoch(counted: CountedSteps, batch: int) -> EpochDone:
    """Give the whole run as the one epoch that a run of a script has on record."""
    return EpochDone(
        epoch=1,
        train_loss=math.nan,
        validation_loss=None,
        metrics={},
        samples=round(counted.counted * counted.whole_share * batch),
        train_time_s=counted.time_s,
        validation_time_s=0.0,
        throughput_samples_per_s=rate_of(counted, batch),
    )
