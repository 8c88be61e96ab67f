"""Jobs and trainings are found by the state that is shown of them, which may not be stored."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from training_samples import BEGUN, JOB

from launch.system.process_identity import ProcessIdentity
from planner.api import jobs, trainings
from planner.plans.stored_plan import utc_now
from planner.records.job_record import JobState
from planner.records.training_record import TrainingStatus
from planner.store import Store

ORDER = ("ended", "runs", "silent", "runs", "silent")
"""What was stored, the oldest first; of one on another machine nothing was heard for an hour."""


def common(kind):
    here = ProcessIdentity.of()
    heard = utc_now() - timedelta(hours=kind == "silent")
    machine = "atlas" if kind == "silent" else here.machine
    return {"machine": machine, "heartbeat_at": heard, "process": here if kind == "runs" else None}


@pytest.fixture
def find_jobs(db):
    with Store.open(db) as store:
        for kind in ORDER:
            job = store.jobs.add(
                replace(JOB, created_at=utc_now(), state=JobState.RUNNING, **common(kind))
            )
            if kind == "ended":
                store.jobs.end(job.id, JobState.INTERRUPTED)
    return lambda state, **part: jobs.find(states=[JobState(state)], db=db, **part)


@pytest.fixture
def find_trainings(db, tmp_path):
    process = ProcessIdentity(machine="atlas", boot_id="there", pid=7, started_ticks=1)
    with Store.open(db) as store:
        for kind in ORDER:
            training = store.trainings.add(
                replace(
                    BEGUN,
                    started_at=utc_now(),
                    run_directory=str(tmp_path),
                    **common(kind) | ({"process": process} if kind == "silent" else {}),
                )
            )
            if kind == "ended":
                store.trainings.end(training.id, TrainingStatus.INTERRUPTED)
    return lambda state, **part: trainings.find(states=[TrainingStatus(state)], db=db, **part)


@pytest.mark.parametrize("of", ["find_jobs", "find_trainings"])
@pytest.mark.parametrize(
    ("state", "part", "numbers"),
    [
        ("running", {}, [4, 2]),
        ("running", {"most": 1}, [4]),
        ("running", {"before": 4}, [2]),
        ("interrupted", {}, [5, 3, 1]),
        ("interrupted", {"most": 2}, [5, 3]),
        ("interrupted", {"before": 5, "most": 2}, [3, 1]),
        ("done", {}, []),
    ],
)
def test_a_list_of_one_state_has_all_that_are_shown_in_it_and_no_other(
    request, of, state, part, numbers
):
    """Once silent jobs were listed as running and not as interrupted, and a part of a list of
    running trainings that held silent ones came out short, as if nothing followed."""
    find = request.getfixturevalue(of)
    assert [one.id for one in find(state, **part)] == numbers
    assert {str(one.state) for one in find(state, **part)} <= {state}
