"""Trainings are resumed once, on their machine, from what is stored and by code that is named."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from filled_store import fill
from serving import STEADY, Serving, act, serving

from planner.records.training_record import TrainingStatus
from planner.store import Store

RESUME = "/api/v1/trainings/{id}/resume"


@pytest.fixture(scope="module")
def resuming(tmp_path_factory, own_locks) -> Iterator[Serving]:
    """A server whose database has trainings of this machine, one in each state."""
    folder = tmp_path_factory.mktemp("resuming")
    fill(folder / "planner.db", machine=platform.node())
    with Store.open(str(folder / "planner.db")) as store:
        for training in store.trainings.find():
            checkpoint = folder / training.state / "step-00000400"
            store.trainings.update(training.id, checkpoint=str(checkpoint))
            if training.state is not TrainingStatus.FAILED:
                checkpoint.mkdir(parents=True)
        training = replace(store.trainings.get(1), id=None, use_case=STEADY, epochs_done=())
        number = store.trainings.add(training).id
        store.trainings.update(number, checkpoint=str(checkpoint))
        store.trainings.end(number, TrainingStatus.FAILED)
    with serving(folder, "--allow-actions") as started:
        yield started


def number_of(server: Serving, state: str) -> int:
    found = server.ask(f"/api/v1/trainings?state={state}&use_case=simplebig").data
    return found[0]["id"]


def test_a_training_is_resumed_once_from_what_is_stored(resuming):
    number = number_of(resuming, TrainingStatus.CANCELLED)
    with ThreadPoolExecutor(8) as threads:
        replies = list(threads.map(lambda _: act(resuming, RESUME, {}, number), range(8)))
    assert sorted(reply.status for reply in replies) == [202] + [409] * 7
    (reply,) = [reply for reply in replies if reply.status == 202]
    assert reply.data["request"] == {
        "use_case": "simplebig",
        "data": "/data/photos",
        "epochs": 9,
        "checkpoint": str(resuming.folder / "cancelled"),
        "resume": True,
    }
    job = resuming.wait_for_job(reply.data["id"])
    assert job["state"] == "failed"  # there are no such photos


@pytest.mark.parametrize(
    ("state", "reason"), [("running", "running"), ("done", "done"), ("failed", "no checkpoint")]
)
def test_a_training_that_runs_is_done_or_left_no_checkpoint_is_not_resumed(resuming, state, reason):
    reply = act(resuming, RESUME, {}, number_of(resuming, state))
    assert reply.status == 409
    assert reason in reply.message


def test_code_that_only_the_database_names_is_not_run(resuming):
    (training,) = resuming.ask(f"/api/v1/trainings?use_case={STEADY}").data
    reply = act(resuming, RESUME, {}, training["id"])
    assert reply.status == 403
    assert "--use-case" in reply.message


def test_a_training_of_another_machine_is_not_resumed(server):
    reply = act(server, RESUME, {}, number_of(server, TrainingStatus.FAILED))
    assert reply.status == 409
    assert "elsewhere" in reply.message
