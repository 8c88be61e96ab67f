"""True states of trainings: by their process here, by when they were heard of elsewhere."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from training_samples import BEGUN

from launch.system.process_identity import ProcessIdentity
from planner.errors import StoreUnwritableError
from planner.plans.stored_plan import utc_now
from planner.records.training_record import TrainingStatus
from planner.supervision.states import true_trainings


def training(process, **changes):
    began = replace(BEGUN, started_at=utc_now() - timedelta(hours=1), heartbeat_at=utc_now())
    return replace(began, **{"machine": process.machine, "process": process} | changes)


def true_state(store, record):
    (found,) = true_trainings(store, [store.trainings.add(record)])
    return found


def test_training_that_runs_or_is_over_or_of_which_its_machine_is_heard_is_as_stored(store, dead):
    running = training(ProcessIdentity.of())
    done = training(dead, state=TrainingStatus.DONE)
    there = training(replace(dead, machine="node9"))
    for one in (running, done, there):
        assert true_state(store, one).state is one.state


def test_training_whose_process_is_gone_is_stored_as_interrupted_when_it_was_last_heard_of(
    store, dead
):
    heard = utc_now() - timedelta(minutes=40)
    found = true_state(store, training(dead, heartbeat_at=heard))
    (stored,) = store.trainings.find()
    for one in (found, stored):
        assert (one.state, one.ended_at) == (TrainingStatus.INTERRUPTED, heard)


@pytest.mark.parametrize("last", ["heartbeat_at", "started_at"])
@pytest.mark.parametrize(
    ("silent_s", "state"), [(130, TrainingStatus.INTERRUPTED), (100, TrainingStatus.RUNNING)]
)
def test_training_of_an_earlier_boot_is_interrupted_once_it_was_silent_for_long(
    store, silent_s, state, last
):
    """Two machines of one name once ended each other's trainings: each took the other's boot for an
    earlier one of its own. One that was never heard of was last when it started."""
    process = replace(ProcessIdentity.of(), boot_id="before")
    heard = {"heartbeat_at": None, last: utc_now() - timedelta(seconds=silent_s)}
    silent = training(process, **heard)
    assert true_state(store, silent).state is state
    (stored,) = store.trainings.find()
    assert stored.state is state


def test_nothing_is_written_of_a_training_of_another_machine(store, dead):
    """Its process may look like one of this machine's boot that has ended."""
    process = replace(dead, machine="atlas")
    silent = training(process, heartbeat_at=utc_now() - timedelta(hours=11))
    found = true_state(store, silent)
    assert found.error is not None
    assert (found.state, found.ended_at) == (TrainingStatus.INTERRUPTED, None)
    assert found.error.startswith("atlas has not been heard of since ")
    (stored,) = store.trainings.find()
    assert (stored.state, stored.error) == (TrainingStatus.RUNNING, None)


def test_trainings_can_be_read_from_a_database_that_cannot_be_written(store, dead, monkeypatch):
    def refuse(*_, **__):
        raise StoreUnwritableError("attempt to write a readonly database")

    monkeypatch.setattr(store.trainings, "end", refuse)
    heard = utc_now() - timedelta(minutes=40)
    found = true_state(store, training(dead, heartbeat_at=heard))
    assert (found.state, found.ended_at) == (TrainingStatus.INTERRUPTED, heard)
