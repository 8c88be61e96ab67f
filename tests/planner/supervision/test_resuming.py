"""A training goes on as it was started, once whatever ran it is gone."""

from __future__ import annotations

import platform
from dataclasses import replace
from datetime import timedelta

import pytest
from supervision_queue import DB
from training_samples import BEGUN, JOB

from launch.system.process_identity import ProcessIdentity
from planner.api import jobs
from planner.errors import ConflictError
from planner.plans.stored_plan import utc_now
from planner.records.job_record import JobKind, JobState
from planner.records.training_record import TrainingRecord
from planner.store import Store
from planner.supervision.resuming import resume_request
from planner.supervision.states import true_jobs, true_trainings

HERE = ProcessIdentity.of()


@pytest.fixture
def cut_off(tmp_path):
    """Give a function that stores a training with a checkpoint and the job that ran it, both as
    they were when they were last heard of."""

    def do(store: Store, silent_s: float, process: ProcessIdentity, **request) -> TrainingRecord:
        heard = utc_now() - timedelta(seconds=silent_s)
        checkpoint = tmp_path / "kept" / "step-00000400"
        checkpoint.mkdir(parents=True)
        common = {"machine": platform.node(), "process": process, "heartbeat_at": heard}
        training = store.trainings.add(
            replace(
                BEGUN,
                started_at=heard,
                use_case="simplebig",
                hosts=(),
                run_directory=str(tmp_path),
                checkpoint=str(checkpoint),
                **common,
            )
        )
        store.jobs.add(
            replace(
                JOB,
                kind=JobKind.LAUNCH,
                created_at=heard,
                title="ddlplan launch",
                request={"use_case": "simplebig", "checkpoint": str(checkpoint.parent), **request},
                state=JobState.RUNNING,
                training_id=training.id,
                **common,
            )
        )
        return training

    return do


@pytest.mark.parametrize("elsewhen", [{"boot_id": "before"}, {"pid_namespace": "pid:[7]"}])
def test_training_of_an_earlier_boot_or_container_is_resumed(queue, cut_off, elsewhen):
    """Once it was refused for ever: the job that had run it was taken for running, as stored."""
    training = cut_off(queue.store, 130, replace(HERE, **elsewhen))
    job = queue.wait(jobs.resume(training.id, db=DB).id)
    assert job.request["resume"] is True


def test_training_that_was_heard_of_just_now_is_not_resumed(queue, cut_off):
    training = cut_off(queue.store, 10, replace(HERE, boot_id="before"))
    with pytest.raises(ConflictError, match="is running"):
        jobs.resume(training.id, db=DB)


def test_training_goes_on_with_the_options_that_it_was_started_with(tmp_path, cut_off):
    """Once a training that was started with `allow_stale` failed when it was resumed, and one
    with a plan of its own went on with the best one; one whose steps are several passes made
    them in one, which takes more memory."""
    with Store.open(str(tmp_path / DB)) as store:
        before = replace(HERE, boot_id="before")
        started_with = {"plan": 7, "allow_stale": True, "effective_batch": 1024}
        training = cut_off(store, 130, before, **started_with)
        (stopped,) = true_trainings(store, [training])
        related = true_jobs(store, store.jobs.find(training_id=training.id))
        request = resume_request(stopped, list(related), use_cases=None, where={}, hosts=None)
    assert started_with.items() <= request.items()
