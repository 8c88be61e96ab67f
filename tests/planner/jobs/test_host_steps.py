"""Time, readiness and memory of a host's steps, as far as its plan has shown them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sample_plan import SOFTWARE
from store_cases import STUDY

from launch.plan import Plan
from planner.jobs.batch_limit import largest_batch
from planner.jobs.making import find_plans
from planner.plans.measured_steps import StepPoint, steps_from_points
from planner.trials.result import Outcome, Role, TrialResult
from probes.hardware import Memory
from probes.timing import Measurement
from tests.planner.jobs.host_plans import FAST, GIB, REMEDY, REQUEST, SLOW, plan, point


def test_steps_of_an_older_plan_are_those_of_its_study(store):
    here = {"node": "fast", "fingerprint": FAST.fingerprint()}
    study = replace(STUDY, software=SOFTWARE, **here)
    study_id = store.studies.get_or_create(study)
    old = plan(FAST, step_time=None, gradient_bytes=None, study_id=study_id)
    for batch, step_s in ((64, 1.0), (128, 1.8), (32, 0.6)):
        result = TrialResult(
            plan=replace(old.plan, node_batch=batch),
            role=Role.SEARCH,
            outcome=Outcome.OK,
            measurement=Measurement(samples_s=(step_s,) * 5),
            elapsed_s=9.0,
        )
        store.studies.add_trial(study_id, result)
    store.plans.save(old)
    (found,) = find_plans(store, REQUEST, {"n1": FAST}, SOFTWARE, remedy=REMEDY)
    assert found.steps.step_time.fixed_s == pytest.approx(0.2)
    assert [point.node_batch for point in found.steps.points] == [32, 64, 128]


def test_steps_of_one_batch_on_a_cpu_have_the_fixed_part_of_such_models(store):
    store.plans.save(plan(FAST, 64.0, step_time=None))
    (found,) = find_plans(store, REQUEST, {"n1": FAST}, SOFTWARE, remedy=REMEDY)
    line = found.steps.step_time
    assert 0.05 < line.fixed_s < 0.15
    assert line.at(128) == pytest.approx(2.0)


def test_steps_of_one_batch_are_proportional_where_nothing_is_known_of_the_model(store):
    store.plans.save(plan(FAST, 64.0, step_time=None, gradient_bytes=None))
    (found,) = find_plans(store, REQUEST, {"n1": FAST}, SOFTWARE, remedy=REMEDY)
    assert found.steps.step_time.fixed_s == 0
    assert found.steps.step_time.at(64) == pytest.approx(1.0)


def test_core_that_the_plan_leaves_free_can_do_the_exchange(both):
    assert both[0].cluster_node().cores == 4
    spare = replace(both[0].stored, plan=replace(both[0].stored.plan, threads_per_process=3))
    assert replace(both[0], stored=spare).cluster_node().cores is None


def test_exchange_takes_more_of_a_core_of_which_there_is_only_a_half(both):
    halved = replace(SLOW, cpu=replace(SLOW.cpu, quota_cores=0.5))
    assert replace(both[1], node=halved).cluster_node().cores == 0.5


def limit(points, *, usable=16 * GIB, available=None, devices=("cpu",)):
    memory = Memory(total_bytes=usable, usable_bytes=usable, available_bytes=available)
    found = Plan(strategy="threads", node_batch=128, devices=devices)
    return largest_batch(found, steps_from_points(points), replace(FAST, memory=memory))


def test_plan_whose_steps_begin_early_waits_less_for_the_network(both):
    early = both[0]
    late = replace(early, stored=replace(early.stored, begins_early=False))
    assert early.cluster_node().first_ready < late.cluster_node().first_ready


@pytest.mark.parametrize(
    "changes",
    [
        {"micro_batches": 2},
        {"compile": True},
        {"strategy": "gpu_data", "processes": 2, "replicas": 2, "devices": ("cuda:0", "cuda:1")},
        {"strategy": "sequential", "devices": ("cuda:0",), "cuda_graph": True},
        {"strategy": "pipeline", "processes": 2},
    ],
    ids=["micro_batches", "compiled", "several GPUs", "recorded", "stages"],
)
def test_plan_whose_gradients_are_final_late_waits_longer_for_the_network(both, changes):
    stored = replace(both[0].stored, begins_early=False)
    usual = replace(both[0], stored=replace(stored, plan=replace(stored.plan, micro_batches=1)))
    late = replace(both[0], stored=replace(stored, plan=replace(stored.plan, **changes)))
    assert usual.cluster_node().first_ready < late.cluster_node().first_ready <= 1


def test_share_is_limited_by_memory_that_grows_with_the_batch():
    points = [point(32, GIB), point(128, 2 * GIB)]
    expected = 128 + (0.9 * 16 - 2) * 96
    assert limit(points) == pytest.approx(expected, abs=1)
    assert limit(points, available=4 * GIB) == 128 + 2 * 96


def test_share_is_limited_by_one_measurement_as_if_all_memory_were_the_samples():
    assert limit([point(128, 2 * GIB)]) == pytest.approx(0.9 * 16 / 2 * 128, abs=1)


def test_memory_that_seems_not_to_grow_is_still_limited():
    assert limit([point(32, 2 * GIB), point(128, 2 * GIB)]) < 10_000


def test_batch_that_was_seen_to_run_is_never_too_large():
    assert limit([point(32, GIB), point(128, 20 * GIB)]) == 128


def test_share_on_a_gpu_is_at_most_what_was_seen_to_run():
    assert limit([point(32, GIB), point(128, 2 * GIB)], devices=("cuda:0",)) == 128
    assert limit([StepPoint(node_batch=64, step_s=1.0)]) == 64
