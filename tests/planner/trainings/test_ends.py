"""End of a training in the database: with its last steps, or not at all."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from training_samples import BEGUN, HOST

from launch.reports import StepDone
from launch.scripts.step_counter import CountedSteps
from planner.api.scripts.recording import begin_row, end_row
from planner.records.training_record import TrainingStatus
from planner.store import Store
from planner.store.databases.sqlite import SqliteDatabase
from planner.trainings.recorder import TrainingRecorder
from planner.trials.reports import ignore

STEP = StepDone(step=1, epoch=0, time_s=0.1, samples=8, loss=1.0)


@pytest.fixture
def db(tmp_path):
    path = tmp_path / "planner.db"
    Store.open(str(path)).close()
    return str(path)


@pytest.fixture
def states(db, monkeypatch):
    """Steps and state of the training after each transaction: as it is where one is killed."""
    found, write = [], SqliteDatabase.write

    def write_and_look(database, work):
        written = write(database, work)
        with closing(sqlite3.connect(db)) as other:
            found.extend(other.execute("SELECT steps, state FROM trainings"))
        return written

    monkeypatch.setattr(SqliteDatabase, "write", write_and_look)
    return found


def test_training_has_its_last_steps_when_it_is_over_and_not_before(db, states):
    """The story: killed between the two, a training that had come to its end was interrupted."""
    recorder = TrainingRecorder(db, BEGUN, lambda _: None, lambda _: None)
    recorder.add(STEP)
    recorder.add(STEP)
    recorder.end(None)
    assert states[-1] == (2, "done")
    assert (2, "running") not in states


@pytest.mark.parametrize("made", [20, None])
def test_run_of_a_script_has_its_steps_when_it_is_over_and_not_before(db, states, made):
    counted = None if made is None else CountedSteps(made=made, counted=12, time_s=6.0)
    number = begin_row("script:python train.py", [HOST], 80.0, db, ignore)
    end_row(number, db, ignore, TrainingStatus.FAILED, "the script has ended", counted, 8)
    assert {steps for steps, state in states if state == "running"} == {0}
    assert states[-1] == (made or 0, "failed")
    with Store.open(db) as store:
        (stored,) = store.trainings.find()
    assert stored.error == "the script has ended"
    assert len(stored.epochs_done) == (made is not None)
