"""Sweeps with real workers: each point is the training that a launch runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from imagined_machines import node_of
from sample_plan import FOUND
from sweep_samples import sample_record
from worth_cases import NODE

from launch.errors import InvalidPlanError
from launch.job import Job, NodeJob
from launch.plan import Plan
from launch.rank.epoch import EpochStatistics
from launch.rank.node import Node
from launch.reports import StepDone, StepsFinished, Validated
from planner.api import SweepRequest, make_workload, sweeps
from planner.cancellation import Cancellation
from planner.errors import NoPlanError
from planner.plans.software import current_software
from planner.store import Store
from planner.sweeps.reports import PointDone
from planner.sweeps.sweep_record import StoredSweep
from planner.trials.result import Outcome
from probes.node import probe

CLOUDS = Path(__file__).parents[1] / "sweeps" / "clouds.py"
BATCHES = (16, 320)


def request_of(name: str, batches=BATCHES, **more) -> SweepRequest:
    return SweepRequest(workload=make_workload(f"{CLOUDS}:{name}"), batches=batches, **more)


@pytest.fixture(scope="module")
def shared_db(tmp_path_factory, shared_servers) -> str:
    return str(tmp_path_factory.mktemp("sweeps") / "planner.db")


@pytest.fixture(scope="module")
def done(shared_db) -> StoredSweep:
    return sweeps.sweep(request_of("Clouds", devices=(1, 2), epochs=2), db=shared_db).sweep


def test_sweep_has_the_hardware_of_its_machine(db):
    record = replace(sample_record([32]), node=NODE.node, fingerprint=NODE.fingerprint())
    with Store.open(db) as store:
        sweep_id = store.sweeps.begin(record, fresh=False).record.id
        assert sweeps.get(sweep_id, db=db).hardware is None
        store.machines.save_probe(NODE)
    assert sweeps.get(sweep_id, db=db).hardware == NODE


@pytest.mark.long
def test_every_batch_is_trained_on_every_device_setting(done):
    assert [(one.batch, one.setting) for one in done.points] == [
        (16, 0),
        (16, 1),
        (320, 0),
        (320, 1),
    ]
    assert {one.outcome for one in done.points} == {Outcome.OK}
    assert done.record.is_finished
    assert done.hardware.fingerprint() == done.record.fingerprint
    assert [len(one.epochs) for one in done.points] == [2] * 4
    assert {one.epochs[-1].samples for one in done.points} == {640}


@pytest.mark.long
def test_settings_of_a_batch_take_turns_in_the_same_rounds(done):
    first, second = (done.find(16, setting) for setting in (0, 1))
    assert first.side_by_side == second.side_by_side
    assert first.measurement.rounds == second.measurement.rounds
    assert len(first.measurement.rounds) >= 16


@pytest.mark.long
def test_workers_learn_the_same_as_one_process_does(done):
    for batch in BATCHES:
        losses = [done.find(batch, setting).last_epoch.validation_loss for setting in (0, 1)]
        assert losses[0] == pytest.approx(losses[1], rel=1e-4)


@pytest.mark.long
def test_point_trains_exactly_as_a_launch_of_the_same_plan_does(done, tmp_path, shared_servers):
    """The rank's own node runs the plan of a point; its epochs are the point's, to the last bit."""
    point = done.find(16, 0)
    job = Job(
        workload=make_workload(f"{CLOUDS}:Clouds"),
        nodes=(NodeJob(host="here", plan=point.plan),),
        run_directory=str(tmp_path / "run"),
        epochs=2,
    )
    statistics, epochs = EpochStatistics(1, 16), []

    def take(report):
        match report:
            case StepDone():
                statistics.add_step(report)
            case StepsFinished():
                statistics.add_finish(report)
            case Validated():
                epochs.append(statistics.add_validation(report))

    assert Node(job, 0, probe(quick=True).cpu, take).train(shared_servers)
    found = [(one.train_loss, one.validation_loss, dict(one.metrics)) for one in epochs]
    assert found == [(e.train_loss, e.validation_loss, dict(e.metrics)) for e in point.epochs]


@pytest.mark.long
def test_second_call_trains_nothing_again(done, shared_db):
    again = sweeps.sweep(request_of("Clouds", devices=(1, 2), epochs=2), db=shared_db)
    assert again.new_points == 0
    assert again.sweep.record.id == done.record.id
    assert sweeps.find(db=shared_db)[0].num_points == 4


@pytest.mark.long
@pytest.mark.parametrize(("name", "outcome"), [("Explodes", "nan_loss"), ("Dies", "crash")])
def test_point_that_fails_is_a_result_and_the_sweep_goes_on(shared_db, name, outcome):
    ended = []
    listener = lambda report, host=None: ended.append(report)  # noqa: E731
    found = sweeps.sweep(request_of(name, devices=(1,)), db=shared_db, listener=listener).sweep
    assert [str(one.outcome) for one in found.points] == ["ok", outcome]
    assert found.points[1].reason
    assert len([one for one in ended if isinstance(one, PointDone)]) == 2


@pytest.mark.long
@pytest.mark.usefixtures("shared_servers")
def test_stored_plan_is_swept_with_the_batches_of_the_sweep(db):
    node, workload = probe(quick=True), make_workload(f"{CLOUDS}:Clouds")
    stored = replace(
        FOUND,
        plan=Plan(strategy="sequential", fused_optimizer=True, node_batch=64),
        use_case=workload.use_case,
        node=node.node,
        fingerprint=node.fingerprint(),
        software=current_software(),
    )
    with Store.open(db) as store:
        plan_id = store.plans.save(stored)
    best = sweeps.sweep(request_of("Clouds", plans="best"), db=db).sweep
    (setting,) = best.record.settings
    assert (setting.label, setting.plan_id) == (f"plan {plan_id}", plan_id)
    assert [one.plan.node_batch for one in best.points] == list(BATCHES)
    assert {one.plan.fused_optimizer for one in best.points} == {True}
    named = sweeps.sweep(request_of("Clouds", plans=(plan_id,), devices=(1,)), db=db).sweep
    labels = [setting.label for setting in named.record.settings]
    assert labels == ["1 worker", f"plan {plan_id}"]


def test_batch_of_fewer_samples_than_workers_is_refused_before_anything_starts(db):
    with pytest.raises(InvalidPlanError, match=r"--batches has 1 and 2 workers: .*at least one"):
        sweeps.sweep(request_of("Clouds", batches=(1, 64), devices=(1, 2)), db=db)
    assert not Path(db).exists()


@pytest.mark.parametrize(
    ("options", "labels", "notes"),
    [
        (
            {"batches": (4, 64)},
            ["1 worker", "2 workers", "4 workers"],
            ["at most 4 workers: more of them than batch 4 has samples are left out"],
        ),
        ({"batches": (8, 64)}, ["1 worker", "2 workers", "4 workers", "8 workers"], []),
        ({"batches": (4, 64), "devices": (1, 8)}, ["1 worker", "8 workers"], []),
    ],
    ids=["left out", "all", "named"],
)
def test_devices_that_nobody_named_are_no_more_than_the_smallest_batch_has_samples(
    tmp_path, options, labels, notes
):
    """The nine batches of MNIST, from 32 on, could not be swept on a machine of 48 cores."""
    said = []

    def listener(report, host=None):
        said.append(report.message)

    settings = sweeps._make_settings(
        request_of("Clouds", **options), node_of(8), str(tmp_path / "db"), listener, Cancellation()
    )
    assert [setting.label for setting in settings] == labels
    assert said == notes


def test_more_devices_than_there_are_are_refused(db):
    with pytest.raises(InvalidPlanError, match="--devices has 4096 and usable_"):
        sweeps.sweep(request_of("Clouds", devices=(4096,)), db=db)


def test_best_plan_of_nothing_names_the_command_that_finds_one(db):
    with pytest.raises(NoPlanError, match=r"no plan for .*: run ddlplan tune"):
        sweeps.sweep(request_of("Clouds", plans="best"), db=db)
