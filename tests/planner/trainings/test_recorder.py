"""The row of a training: what is written of it, when, and what if that is not possible."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from math import isnan, nan
from pathlib import Path

import pytest
from training_samples import BEGUN, EPOCH, HOST
from usage_samples import steps, used
from worth_cases import FACTS

from launch.reports import CheckpointSaved, Described, StepDone, WeightsSaved
from planner.errors import CancelledError, TrainingFailedError
from planner.jobs.training import RunBegun
from planner.records.training_record import TrainingRecord, TrainingStatus
from planner.store import Store
from planner.trainings import recorder as recorder_module
from planner.trainings.recorder import TrainingRecorder

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
STEP = StepDone(step=1, epoch=0, time_s=0.1, samples=8, loss=1.0)


def training(*hosts: str) -> TrainingRecord:
    return replace(
        BEGUN,
        epochs=3,
        hosts=tuple(replace(HOST, host=name) for name in hosts or ("node1",)),
        expected_samples_per_s=80.0,
        machine="node1",
        run_directory="",
    )


class Recording:
    """A recorder with a database of its own, what it has said, and a clock that stands still."""

    def __init__(self, path: Path, *hosts: str) -> None:
        self.path = path
        self.numbers: list[int] = []
        self.warnings: list[str] = []
        Store.open(str(path)).close()
        self.recorder = TrainingRecorder(
            str(path), training(*hosts), self.numbers.append, self.warnings.append
        )
        self.recorder.add(RunBegun(run_directory="/home/me/runs/1"))

    def stored(self) -> list[TrainingRecord]:
        with Store.open(str(self.path)) as store:
            return store.trainings.find()

    def usage(self):
        with Store.open(str(self.path)) as store:
            return store.trainings.usage(1)


@pytest.fixture
def recording(tmp_path):
    return Recording(tmp_path / "planner.db")


@pytest.fixture
def _always_due(monkeypatch):
    """Write with each report."""
    for name in ("_WRITE_EVERY_S", "_EPOCH_EVERY_S", "_USAGE_EVERY_S"):
        monkeypatch.setattr(recorder_module, name, 0.0)
    for name in ("_WRITE_PART", "_USAGE_PART"):
        monkeypatch.setattr(recorder_module, name, 1e9)


def test_training_is_recorded_from_its_first_step_on(recording):
    recording.recorder.add(Described(facts=FACTS))
    recording.recorder.add(used())
    assert recording.stored() == []
    recording.recorder.add(STEP)
    (record,) = recording.stored()
    assert recording.numbers == [record.id] == [1]
    assert record.state is TrainingStatus.RUNNING
    assert record.run_directory == "/home/me/runs/1"
    assert record.heartbeat_at is not None
    assert (record.use_case_digest, record.is_generated) == (FACTS.digest, False)
    assert list(recording.usage()) == ["node1"]


def test_training_without_a_step_leaves_no_row(recording):
    recording.recorder.add(used())
    recording.recorder.end(TrainingFailedError("the use case is at fault"))
    assert recording.stored() == []
    assert recording.numbers == []


def test_steps_are_not_written_one_by_one_and_none_is_lost(recording):
    for _ in range(100):
        recording.recorder.add(STEP)
    (record,) = recording.stored()
    assert record.steps == 1
    recording.recorder.end(None)
    (record,) = recording.stored()
    assert (record.steps, record.state) == (100, TrainingStatus.DONE)
    assert record.ended_at is not None
    assert recording.numbers == [1]
    assert not recording.warnings


@pytest.mark.usefixtures("_always_due")
def test_what_a_training_reaches_is_written_as_it_comes(tmp_path):
    recording = Recording(tmp_path / "planner.db")
    for report in (
        STEP,
        EPOCH,
        CheckpointSaved(path="/kept/step-1", step=1, time_s=0.1),
        WeightsSaved(path="/home/me/runs/1/weights.safetensors", num_bytes=8),
    ):
        recording.recorder.add(report)
    (record,) = recording.stored()
    assert record.epochs_done == (EPOCH,)
    assert (record.checkpoint, record.steps) == ("/kept/step-1", 1)
    assert record.weights == "/home/me/runs/1/weights.safetensors"
    assert record.state is TrainingStatus.RUNNING


@pytest.mark.usefixtures("_always_due")
def test_losses_that_are_no_numbers_are_none_when_they_are_read_again(tmp_path):
    """The story: they were stored as null, and no training of that database could be read."""
    recording = Recording(tmp_path / "planner.db")
    recording.recorder.add(replace(EPOCH, train_loss=nan, metrics={"accuracy": nan}))
    ((stored,),) = (record.epochs_done for record in recording.stored())
    assert isnan(stored.train_loss)
    assert isnan(stored.metrics["accuracy"])


@pytest.mark.parametrize(
    ("error", "state", "message"),
    [
        (None, TrainingStatus.DONE, None),
        (CancelledError(), TrainingStatus.CANCELLED, None),
        (KeyboardInterrupt(), TrainingStatus.CANCELLED, None),
        (TrainingFailedError("worker 1\n  died"), TrainingStatus.FAILED, "worker 1 died"),
    ],
)
def test_end_is_recorded_with_its_reason(error, state, message, recording):
    recording.recorder.add(STEP)
    recording.recorder.end(error)
    (record,) = recording.stored()
    assert (record.state, record.error) == (state, message)


@pytest.mark.usefixtures("_always_due")
def test_hosts_take_turns_and_all_are_written_in_the_end(tmp_path):
    recording = Recording(tmp_path / "planner.db", "node1", "node2")
    for rank in (0, 1):
        recording.recorder.add(used(rank=rank, steps=steps()))
    recording.recorder.add(STEP)
    assert list(recording.usage()) == ["node1"]
    recording.recorder.add(STEP)
    recording.recorder.add(used(rank=1, steps=steps()))
    recording.recorder.end(None)
    usage = recording.usage()
    assert {host: len(each.time_s) for host, each in usage.items()} == {"node1": 1, "node2": 2}
    assert usage["node1"].sync_wait.mean == (0.5,)
    assert usage["node1"].loss is not None
    assert usage["node2"].loss is None


@pytest.mark.usefixtures("_always_due")
def test_locked_database_is_left_out_and_the_end_is_written_all_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(recorder_module, "_LOCK_TIMEOUT_S", 0.0)
    recording = Recording(tmp_path / "planner.db")
    with closing(sqlite3.connect(recording.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        for report in (STEP, STEP, EPOCH):
            recording.recorder.add(report)
        other.execute("ROLLBACK")
    assert recording.stored() == []
    assert recording.numbers == []
    recording.recorder.end(None)
    (record,) = recording.stored()
    assert (record.steps, record.epochs_done) == (2, (EPOCH,))
    assert record.state is TrainingStatus.DONE
    assert recording.numbers == [1]
    assert not recording.warnings


def test_database_that_stays_locked_fails_no_training_and_is_told(tmp_path, monkeypatch):
    for name in ("_LOCK_TIMEOUT_S", "_END_LOCK_TIMEOUT_S"):
        monkeypatch.setattr(recorder_module, name, 0.0)
    recording = Recording(tmp_path / "planner.db")
    with closing(sqlite3.connect(recording.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        recording.recorder.add(STEP)
        assert not recording.warnings
        recording.recorder.end(None)
    (warning,) = recording.warnings
    assert warning.startswith("this training is not fully recorded: database ")
    assert "another program has locked it" in warning


def test_listener_that_fails_is_no_fault_of_the_database(recording):
    def fail(number: int) -> None:
        raise ArithmeticError(number)

    recording.recorder._on_recorded = fail
    with pytest.raises(ArithmeticError):
        recording.recorder.add(STEP)
    assert not recording.warnings


@pytest.fixture
def readable(recording):
    """Be somebody who may read the database and not write it."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to give up root's rights")
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    path = shutil.copy(recording.path, folder)
    Path(path).chmod(0o644)
    os.seteuid(65534)
    try:
        yield path
    finally:
        os.seteuid(0)
        shutil.rmtree(folder)


def test_database_that_may_only_be_read_is_told_once(recording, readable):
    recorder = TrainingRecorder(
        readable, training(), recording.numbers.append, recording.warnings.append
    )
    recorder.add(STEP)
    recorder.add(EPOCH)
    recorder.end(None)
    (warning,) = recording.warnings
    assert "readonly" in warning
    assert recording.numbers == []
