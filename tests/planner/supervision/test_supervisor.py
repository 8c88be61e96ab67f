"""Supervised commands, with real processes: one after another, to an end that is known."""

from __future__ import annotations

import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from machine_holder import machine_in_use
from training_samples import JOB

from planner.errors import RunDirectoryError, SupervisorError
from planner.records.job_record import JobKind, JobState
from planner.supervision import submission
from planner.supervision.job_folder import JobFolder
from planner.supervision.supervisor import make_command, make_environment


def test_job_runs_to_its_end_with_a_log_and_an_exit_record(queue, ddlplan):
    number = queue.submit(quick=True)
    job = queue.wait(number)
    assert (job.state, job.exit_code, job.error) == (JobState.DONE, 0, None)
    assert job.created_at <= job.started_at <= job.ended_at
    assert "cores" in queue.log(number)
    assert JobFolder.find(job).read_exit().state is JobState.DONE
    assert Path(job.folder) == ddlplan.folder / "jobs" / str(number)


def test_reason_of_a_failed_job_is_the_line_that_it_wrote(queue):
    job = queue.wait(queue.submit(hosts="no-such-file"))
    assert (job.state, job.exit_code) == (JobState.FAILED, 2)
    assert job.error == "host file 'no-such-file': no such file or directory"


@pytest.mark.usefixtures("nothing_is_timed")
def test_jobs_run_one_after_another_and_killed_ones_hold_up_no_other(queue):
    """A supervisor that is killed takes its command along, and leaves an interrupted job; so does
    one that is killed in the queue."""
    first, cancelled, killed, last = (queue.submit() for _ in range(4))
    queue.wait_for_command(first)
    assert [queue.get(n).state for n in (cancelled, killed, last)] == [JobState.QUEUED] * 3
    queue.store.jobs.request_cancel(cancelled)
    assert queue.wait(cancelled).state is JobState.CANCELLED
    os.kill(queue.get(killed).process.pid, signal.SIGKILL)
    assert queue.wait(killed).state is JobState.INTERRUPTED
    assert queue.get(first).state is JobState.RUNNING
    os.kill(queue.get(first).process.pid, signal.SIGKILL)
    assert queue.wait(first).state is JobState.INTERRUPTED
    command = JobFolder.find(queue.get(first)).read_command()
    assert command.is_alive() is False, "it was called interrupted while it was still running"
    queue.wait_for_command(last)
    queue.store.jobs.request_cancel(last)
    job = queue.wait(last)
    assert (job.state, job.exit_code) == (JobState.CANCELLED, 130)
    assert "interrupted" in queue.log(last)
    assert queue.get(cancelled).started_at is None
    assert queue.get(killed).state is JobState.INTERRUPTED


@pytest.mark.usefixtures("nothing_is_timed")
def test_supervisor_that_is_asked_to_end_ends_its_command_and_says_so(queue):
    number = queue.submit()
    queue.wait_for_command(number)
    os.kill(queue.get(number).process.pid, signal.SIGTERM)
    job = queue.wait(number)
    assert (job.state, job.error) == (
        JobState.INTERRUPTED,
        "its supervisor was ended by SIGTERM",
    )


@pytest.mark.usefixtures("nothing_is_timed")
def test_command_that_is_killed_has_failed_by_that_signal(queue):
    number = queue.submit()
    os.kill(queue.wait_for_command(number), signal.SIGKILL)
    job = queue.wait(number)
    assert (job.state, job.exit_code, job.error) == (
        *(JobState.FAILED, -9, "killed by signal 9 (SIGKILL)"),
    )


def test_folders_that_are_removed_hide_no_end(queue, ddlplan, tmp_path):
    """That of a running job, and the working folder of one that waits there."""
    gone = tmp_path / "gone"
    gone.mkdir()
    with machine_in_use():
        first = queue.submit()
        job = submission.submit(
            queue.store,
            str(ddlplan.folder / "planner.db"),
            JobKind.PROBE,
            {"quick": True},
            gone / "jobs",
        )
        queue.wait_for_command(first)
        shutil.rmtree(gone)
        shutil.rmtree(Path(queue.get(first).folder))
        queue.store.jobs.request_cancel(first)
        assert queue.wait(first).state is JobState.CANCELLED
    found = queue.wait(job.id)
    assert found.state is JobState.FAILED
    assert "no such file or directory" in found.error


def test_place_where_no_folder_can_be_made_leaves_a_failed_job(queue, ddlplan):
    (ddlplan.folder / "jobs").write_text("")
    with pytest.raises(RunDirectoryError, match="start in a folder where it can be made"):
        queue.submit()
    (job,) = queue.store.jobs.find()
    assert job.state is JobState.FAILED


def test_supervisor_that_cannot_start_says_why(queue, monkeypatch):
    monkeypatch.setattr(submission, "sys", type("", (), {"executable": "/no/such/python"}))
    with pytest.raises(SupervisorError, match="/no/such/python"):
        queue.submit()
    assert queue.store.jobs.find()[0].state is JobState.FAILED


def test_command_gets_listed_options_and_no_variable_stands_for_one():
    job = replace(JOB, id=7, kind=JobKind.PROBE, request={"quick": True})
    given = {"DDLPLAN_JSON": "1", "DDLPLAN_HOSTS": "h", "FORCE_COLOR": "1", "HOME": "/root"}
    assert make_environment(given | {"DDLPLAN_CACHE": "c", "DDLPLAN_DB": "d"}, job) == {
        "HOME": "/root",
        "DDLPLAN_CACHE": "c",
        "DDLPLAN_DB": "d",
        "DDLPLAN_JOB": "7",
    }
    assert make_command(job, "a.db")[3:] == ["planner", "probe", "--quick", "--db=a.db"]
