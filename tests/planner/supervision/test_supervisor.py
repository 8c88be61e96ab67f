"""Supervised commands, with real processes: one after another, to an end that is known."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest
from supervision_queue import timing_taken

from planner.errors import RunDirectoryError, SupervisorError
from planner.plans.stored_plan import utc_now
from planner.records.job_record import JobKind, JobRecord, JobState
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


def test_jobs_of_a_machine_run_one_after_another_in_order(queue):
    with timing_taken():
        first, second, third = (queue.submit() for _ in range(3))
        queue.wait_for_command(first)
        assert [queue.get(n).state for n in (second, third)] == [JobState.QUEUED] * 2
        queue.store.jobs.request_cancel(second)
        assert queue.wait(second).state is JobState.CANCELLED
        assert queue.get(first).state is JobState.RUNNING
        queue.store.jobs.request_cancel(first)
        assert queue.wait(first).state is JobState.CANCELLED
        queue.wait_for_command(third)
        queue.store.jobs.request_cancel(third)
        assert queue.wait(third).exit_code == 130
    assert queue.get(second).started_at is None
    assert "interrupted" in queue.log(third)


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


@pytest.mark.usefixtures("nothing_is_timed")
def test_killed_supervisor_takes_its_command_along_and_the_next_job_begins(queue):
    """One that is killed in the queue leaves an interrupted job too."""
    first, killed, second = (queue.submit() for _ in range(3))
    queue.wait_for_command(first)
    os.kill(queue.get(killed).process.pid, signal.SIGKILL)
    assert queue.wait(killed).state is JobState.INTERRUPTED
    os.kill(queue.get(first).process.pid, signal.SIGKILL)
    assert queue.wait(first).state is JobState.INTERRUPTED
    command = JobFolder.find(queue.get(first)).read_command()
    assert command.is_alive() is False, "it was called interrupted while it was still running"
    queue.wait_for_command(second)
    queue.store.jobs.request_cancel(second)
    assert queue.wait(second).state is JobState.CANCELLED
    assert queue.get(killed).state is JobState.INTERRUPTED


@pytest.mark.usefixtures("nothing_is_timed")
def test_folder_that_is_removed_hides_no_end(queue):
    number = queue.submit()
    queue.wait_for_command(number)
    shutil.rmtree(Path(queue.get(number).folder))
    queue.store.jobs.request_cancel(number)
    assert queue.wait(number).state is JobState.CANCELLED


def test_working_folder_that_is_removed_ends_jobs_that_wait_there(queue, ddlplan, tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    with timing_taken():
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
        queue.store.jobs.request_cancel(first)
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
    job = JobRecord(
        id=7,
        kind=JobKind.PROBE,
        created_at=utc_now(),
        machine="vm",
        user="ada",
        title="",
        request={"quick": True},
        is_detached=True,
    )
    given = {"DDLPLAN_JSON": "1", "DDLPLAN_HOSTS": "h", "FORCE_COLOR": "1", "HOME": "/root"}
    assert make_environment(given | {"DDLPLAN_CACHE": "c", "DDLPLAN_DB": "d"}, job) == {
        "HOME": "/root",
        "DDLPLAN_CACHE": "c",
        "DDLPLAN_DB": "d",
        "DDLPLAN_JOB": "7",
    }
    assert make_command(job, "a.db")[3:] == ["planner", "probe", "--quick", "--db=a.db"]
