"""A command tells what it does; where that cannot be written it goes on as if nothing were."""

from __future__ import annotations

import os
import signal
import sqlite3
import threading
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from training_samples import JOB

from planner.errors import CancelledError, NoPlanError
from planner.records.job_record import JobKind, JobState
from planner.records.progress import TrainingProgress, WorkProgress
from planner.store import Store
from planner.supervision import own_job
from planner.supervision.own_job import recorded_job
from planner.supervision.supervisor import JOB_VARIABLE


@pytest.fixture(autouse=True)
def _limits(monkeypatch):
    """Let it write often, and let its end wait for as long as a busy machine takes."""
    monkeypatch.delenv(JOB_VARIABLE, raising=False)
    monkeypatch.setattr(own_job, "_WRITE_EVERY_S", 0.02)
    monkeypatch.setattr(own_job, "_END_LIMIT_S", 60.0)


@pytest.fixture
def db(tmp_path):
    path = str(tmp_path / "planner.db")
    Store.open(path).close()
    return path


def rows(db):
    with Store.open(db, create=False) as store:
        return store.jobs.find()


def test_command_is_on_record_from_its_first_report_to_its_end(db):
    with recorded_job(db, JobKind.PROBE) as job:
        assert rows(db) == []
        job.report(WorkProgress(doing="measuring"), plan_id=4)
        while not rows(db) or rows(db)[0].progress is None:
            time.sleep(0.01)
        (row,) = rows(db)
        assert (row.state, row.is_detached, row.plan_id) == (JobState.RUNNING, False, 4)
        assert row.process.is_alive()
    (row,) = rows(db)
    assert (row.state, row.exit_code) == (JobState.DONE, 0)
    assert (row.progress, row.plan_id) == ({"doing": "measuring"}, 4)


@pytest.mark.parametrize(
    ("error", "state", "code"),
    [
        (NoPlanError("no plan\nat all"), JobState.FAILED, 3),
        (ZeroDivisionError("oh"), JobState.FAILED, 8),
        (KeyboardInterrupt(), JobState.CANCELLED, 130),
        (CancelledError(signal.SIGTERM), JobState.CANCELLED, 143),
        (CancelledError(signal.SIGKILL, crash="it was killed"), JobState.FAILED, 137),
    ],
)
def test_end_says_what_the_exit_status_says(db, error, state, code):
    def run():
        with recorded_job(db, JobKind.TUNE) as job:
            job.report()
            raise error

    with pytest.raises(type(error)):
        run()
    (row,) = rows(db)
    assert (row.state, row.exit_code) == (state, code)
    if isinstance(error, NoPlanError):
        assert row.error == "no plan at all"


def test_what_is_not_finite_has_no_value(db):
    with recorded_job(db, JobKind.LAUNCH) as job:
        job.report(TrainingProgress(doing="training", epochs=2, loss=float("nan")))
    assert rows(db)[0].progress["loss"] is None


def test_only_the_latest_of_many_reports_is_written(db, monkeypatch):
    monkeypatch.setattr(own_job, "_WRITE_EVERY_S", 60.0)
    with recorded_job(db, JobKind.PROBE) as job:
        for number in range(1000):
            job.report(WorkProgress(doing=str(number)))
    with Store.open(db) as store:
        assert store.jobs.find()[0].progress == {"doing": "999"}
        assert store.events.newest() <= 4


def test_missing_database_is_not_made(tmp_path):
    with recorded_job(str(tmp_path / "none.db"), JobKind.PROBE) as job:
        job.report(WorkProgress(doing="measuring"))
    assert list(tmp_path.iterdir()) == []


def test_database_that_is_made_meanwhile_gets_the_row(tmp_path):
    db = str(tmp_path / "planner.db")
    with recorded_job(db, JobKind.TUNE) as job:
        job.report(WorkProgress(doing="loading"), plan_id=2)
        time.sleep(0.1)
        Store.open(db).close()
        while not rows(db):
            time.sleep(0.01)
    assert (rows(db)[0].state, rows(db)[0].plan_id) == (JobState.DONE, 2)


def test_steps_wait_for_no_database_that_is_locked(db, monkeypatch):
    monkeypatch.setattr(own_job, "_LOCK_TIMEOUT_S", 60.0)
    with (
        closing(sqlite3.connect(db, isolation_level=None)) as other,
        recorded_job(db, JobKind.PROBE) as job,
    ):
        other.execute("BEGIN EXCLUSIVE")
        began = time.monotonic()
        for _ in range(1000):
            job.report(WorkProgress(doing="measuring"))
        reported_s = time.monotonic() - began
        other.execute("COMMIT")
    assert reported_s < own_job._LOCK_TIMEOUT_S


def test_database_that_stays_locked_is_left_out(db, monkeypatch):
    """The end is tried for a moment."""
    monkeypatch.setattr(own_job, "_LOCK_TIMEOUT_S", 0.05)
    with closing(sqlite3.connect(db, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with recorded_job(db, JobKind.PROBE) as job:
            job.report(WorkProgress(doing="measuring"))
        other.execute("COMMIT")
    assert rows(db) == []


def test_end_is_written_though_the_database_is_locked_at_first(db, monkeypatch):
    """Once the end was tried a single time: a command that was done was shown as interrupted."""
    monkeypatch.setattr(own_job, "_LOCK_TIMEOUT_S", 0.05)
    connection = sqlite3.connect(db, isolation_level=None, check_same_thread=False)
    unlock = threading.Timer(0.7, connection.execute, ["COMMIT"])
    with recorded_job(db, JobKind.PROBE) as job:
        job.report(WorkProgress(doing="measuring"))
        while not rows(db):
            time.sleep(0.01)
        connection.execute("BEGIN EXCLUSIVE")
        unlock.start()
    unlock.join()
    connection.close()
    (row,) = rows(db)
    assert (row.state, row.exit_code) == (JobState.DONE, 0)


def test_damaged_database_holds_nothing_up(tmp_path):
    (tmp_path / "planner.db").write_bytes(b"no database" * 100)
    with recorded_job(str(tmp_path / "planner.db"), JobKind.PROBE) as job:
        job.report(WorkProgress(doing="measuring"))


def test_row_of_a_supervisor_is_used_and_its_end_left_to_it(db, monkeypatch):
    with Store.open(db) as store:
        number = store.jobs.add(replace(JOB, state=JobState.RUNNING)).id
    monkeypatch.setenv(JOB_VARIABLE, str(number))
    with recorded_job(db, JobKind.TUNE) as job:
        assert JOB_VARIABLE not in os.environ, "what the command starts is no job"
        job.report(WorkProgress(doing="measuring"))
    (row,) = rows(db)
    assert (row.id, row.state, row.progress) == (number, JobState.RUNNING, {"doing": "measuring"})


def test_thread_that_writes_ends_with_the_command_and_takes_no_signal(db):
    with recorded_job(db, JobKind.PROBE) as job:
        job.report()
        (writer,) = [one for one in threading.enumerate() if "_write_until_end" in one.name]
        while not rows(db):
            time.sleep(0.01)
        status = Path(f"/proc/self/task/{writer.native_id}/status").read_text().splitlines()
        blocked = next(line for line in status if line.startswith("SigBlk"))
        assert int(blocked.split()[1], 16) >> (signal.SIGINT - 1) & 1
    assert not writer.is_alive()


def test_interrupt_while_the_writer_starts_is_an_interrupt(db, monkeypatch):
    def interrupted(_thread):
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt), recorded_job(db, JobKind.TUNE) as job:
        job.report(WorkProgress(doing="measuring"))
    assert rows(db) == []
