"""Each host's plan and share become one job."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from sample_plan import SOFTWARE
from store_cases import STUDY

from launch.errors import InvalidPlanError
from launch.job import Job
from launch.noise_scale.estimate import COST_LIMIT
from launch.plan import Plan
from launch.strategies import check_plan, load_strategy
from planner.cluster.node_choice import choose_nodes
from planner.errors import NoPlanError, StalePlanError
from planner.input_cost.epochs import InputCost
from planner.jobs.host_choice import cluster_nodes
from planner.jobs.making import (
    accumulate,
    find_plans,
    make_job,
    make_local_job,
    renumber_gpus,
    share_input,
)
from planner.plans.measured_steps import steps_from_points
from probes import codec
from probes.hardware import DataSpeed, Gpu
from tests.planner.jobs.host_plans import (
    FAST,
    GIB,
    NODES,
    REMEDY,
    REQUEST,
    SLOW,
    exchange,
    hardware,
    plan,
    point,
    verdict_of,
)


def test_each_host_gets_the_plan_of_its_hardware(both):
    assert [(found.host, found.stored.id) for found in both] == [("n1", 1), ("n2", 2)]


def test_a_plan_that_nothing_stores_is_launched_in_place_of_the_stored_one(store):
    store.plans.save(plan(FAST))
    given = plan(FAST, 10.0)
    request = replace(REQUEST, plan=given)
    (found,) = find_plans(store, request, {"n1": FAST}, SOFTWARE, remedy=REMEDY)
    assert found.stored == given


def test_hosts_with_equal_hardware_share_a_plan(store):
    store.plans.save(plan(FAST))
    nodes = {"n1": FAST, "n2": hardware("twin", cores=4)}
    found = find_plans(store, REQUEST, nodes, SOFTWARE, remedy=REMEDY)
    assert [one.stored.id for one in found] == [1, 1]


def test_hosts_without_a_plan_are_named_together_with_the_way_out(store):
    store.plans.save(plan(FAST))
    nodes = {**NODES, "n3": hardware("other", cores=16)}
    with pytest.raises(NoPlanError, match=r"no plan for simplebig on n2, n3: run .*--hosts"):
        find_plans(store, REQUEST, nodes, SOFTWARE, remedy=REMEDY)


def test_stale_plan_of_a_host_is_refused_by_its_name_unless_allowed(store):
    store.plans.save(plan(FAST))
    study_id = store.studies.get_or_create(replace(STUDY, precision="auto"))
    store.plans.save(plan(SLOW, software=SOFTWARE | {"torch": "1.0.0"}, study_id=study_id))
    said = r"plan 2 is stale on n2, made with torch 1.0.0, .*--hosts hosts.txt --precision auto, or"
    with pytest.raises(StalePlanError, match=said):
        find_plans(store, REQUEST, NODES, SOFTWARE, remedy=REMEDY)
    allowed = replace(REQUEST, allow_stale=True)
    found = find_plans(store, allowed, NODES, SOFTWARE, remedy=REMEDY)
    assert found[1].reasons == ("made with torch 1.0.0, here is 2.15.0",)


def test_job_has_each_hosts_plan_with_its_share(both):
    verdict = verdict_of(both, exchange())
    job = make_job(REQUEST, verdict.chosen, both, Path("/runs/1"))
    assert [node.host for node in job.nodes] == ["n1", "n2"]
    assert job.node_batches == verdict.chosen.batches
    assert sum(job.node_batches) == 256
    assert job.node_batches[0] > 3 * job.node_batches[1]
    assert [node.plan.threads_per_process for node in job.nodes] == [4, 1]
    assert job.nodes[0].step_time == both[0].steps.step_time
    assert job.nodes[0].max_batch > 128
    assert codec.decode(codec.encode(job), Job, source="job") == job


def test_job_knows_the_use_case_that_its_plans_were_found_with(both):
    """Of plans of the first releases it is not known."""
    known = [
        replace(one, stored=replace(one.stored, use_case_digest=digest))
        for one, digest in zip(both, ("sha256:b", "sha256:a"), strict=True)
    ]
    chosen = verdict_of(known, all_hosts=True).chosen
    job = make_job(REQUEST, chosen, known, Path("/runs/1"))
    assert job.case_digests == ("sha256:a", "sha256:b")
    assert make_local_job(REQUEST, known[0], Path("/runs/1")).case_digests == ("sha256:b",)
    mixed = [known[0], both[1]]
    assert make_job(REQUEST, chosen, mixed, Path("/runs/1")).case_digests == ()


@pytest.mark.parametrize(("measures_noise", "limit"), [(True, COST_LIMIT), (False, None)])
def test_job_measures_the_noise_scale_unless_the_user_says_no(both, measures_noise, limit):
    request, chosen = replace(REQUEST, measures_noise=measures_noise), verdict_of(both).chosen
    assert make_job(request, chosen, both, Path("/runs/1")).noise_cost_limit == limit
    local = make_local_job(request, both[0], Path("/runs/1"))
    assert local.noise_cost_limit == limit


def input_cost(in_place_s: float) -> InputCost:
    return InputCost(
        data=DataSpeed(path="/data", file_system="nfs4"),
        train_samples=1000,
        validation_samples=0,
        base_s=0.01,
        in_place_s=lambda _: in_place_s,
        share=0.5,
    )


def test_host_that_reads_slowly_gets_fewer_samples(both):
    known = verdict_of(both, all_hosts=True).chosen
    plans = [replace(both[0], input=input_cost(0.05)), replace(both[1], input=input_cost(0.01))]
    chosen = verdict_of(plans, all_hosts=True).chosen
    assert chosen.batches[0] < 0.7 * known.batches[0]
    assert chosen.batches[1] > known.batches[1]


def test_data_cost_a_host_what_its_chosen_share_of_them_does(both):
    """Each of two hosts was said to read half, whatever its share was, and who read none too."""
    plans = [replace(one, input=input_cost(0.01)) for one in both]
    chosen = verdict_of(plans, all_hosts=True).chosen
    fast, slow = share_input(plans, chosen)
    assert chosen.batches[1] < 0.3 * chosen.global_batch
    assert slow.input.share == pytest.approx(chosen.batches[1] / chosen.global_batch)
    assert fast.input.share == pytest.approx(1 - slow.input.share)
    alone = verdict_of(plans[:1]).chosen
    assert [one.input and one.input.share for one in share_input(plans, alone)] == [1.0, None]


def test_learning_rate_is_scaled_as_all_plans_say_or_as_the_user_says(store):
    for node in (FAST, SLOW):
        stored = plan(node, 40.0)
        store.plans.save(replace(stored, plan=replace(stored.plan, lr_scaling="linear")))
    both = find_plans(store, REQUEST, NODES, SOFTWARE, remedy=REMEDY)
    chosen = verdict_of(both, exchange()).chosen
    job = make_job(REQUEST, chosen, both, Path("/runs/1"))
    assert {node.plan.lr_scaling for node in job.nodes} == {"linear"}
    job = make_job(replace(REQUEST, lr_scaling="sqrt"), chosen, both, Path("/runs/1"))
    assert {node.plan.lr_scaling for node in job.nodes} == {"sqrt"}


def test_plans_that_scale_the_learning_rate_differently_need_a_word_of_the_user(store):
    store.plans.save(plan(SLOW, 40.0))
    stored = plan(FAST, 40.0)
    store.plans.save(replace(stored, plan=replace(stored.plan, lr_scaling="linear")))
    both = find_plans(store, REQUEST, NODES, SOFTWARE, remedy=REMEDY)
    chosen = verdict_of(both, exchange()).chosen
    with pytest.raises(InvalidPlanError, match=r"linear on n1, none on n2\): say how with --lr-sc"):
        make_job(REQUEST, chosen, both, Path("/runs/1"))
    job = make_job(replace(REQUEST, lr_scaling="none"), chosen, both, Path("/runs/1"))
    assert {node.plan.lr_scaling for node in job.nodes} == {"none"}


def test_host_that_is_left_out_has_no_part_in_the_job(both):
    verdict = verdict_of(both, exchange(1e6))
    job = make_job(REQUEST, verdict.chosen, both, Path("/runs/1"))
    assert [node.host for node in job.nodes] == ["n1"]


def test_batch_beyond_what_was_tried_is_taken_where_no_memory_forbids_it(store):
    gpu = Plan(strategy="gpu_data", node_batch=128, devices=("cuda:0",))
    store.plans.save(plan(FAST, plan=gpu))
    store.plans.save(plan(SLOW, 20.0))
    both = find_plans(store, REQUEST, NODES, SOFTWARE, remedy=REMEDY)
    known = sum(found.max_batch for found in both)
    nodes, untried = cluster_nodes(both, known)
    assert (untried, [node.limits.max_batch for node in nodes]) == (
        [],
        [found.max_batch for found in both],
    )
    nodes, untried = cluster_nodes(both, known + 1)
    assert untried == ["n1"]
    assert [node.limits.max_batch for node in nodes] == [None, both[1].max_batch]


def test_effective_batch_is_made_of_passes_of_the_plans_own_batches(both):
    request = replace(REQUEST, global_batch=1000, accumulates=True)
    passed = accumulate(request, both)
    assert [found.passes for found in passed] == [4, 4]  # of 128 and 128 samples
    verdict = choose_nodes([p.cluster_node() for p in passed], None, None, global_batch=1000)
    job = make_job(request, verdict.chosen, passed, Path("runs/1"))
    assert sum(job.node_batches) == 1000
    assert {node.plan.micro_batches for node in job.nodes} == {4}
    for node, found in zip(job.nodes, both, strict=True):
        assert node.plan.node_batch <= 4 * found.max_batch
        assert node.step_time.at(512) == pytest.approx(4 * found.steps.step_time.at(128))


def test_a_batch_that_memory_does_not_hold_is_accumulated(store):
    points = [point(32, GIB), point(128, 12 * GIB)]
    store.plans.save(plan(FAST, step_time=steps_from_points(points)))
    request = replace(REQUEST, global_batch=1024)
    (found,) = find_plans(store, request, {"n1": FAST}, SOFTWARE, remedy=REMEDY)
    with pytest.raises(InvalidPlanError, match="use at most"):
        choose_nodes([found.cluster_node()], None, None, global_batch=1024)
    (passed,) = accumulate(replace(request, accumulates=True), [found])
    assert passed.cluster_node().limits.allow(1024)
    job = make_local_job(request, passed, Path("runs/1"))
    assert (job.nodes[0].plan.node_batch, job.nodes[0].plan.micro_batches) == (1024, 8)


def test_effective_batch_of_a_pipeline_keeps_the_activations_of_a_few_micro_batches():
    pipeline = Plan(
        strategy="pipeline",
        processes=4,
        node_batch=32,
        micro_batches=2,
        options={"schedule": "gpipe", "cut": "measured"},
    )
    strategy = load_strategy("pipeline")
    assert strategy.accumulate(pipeline, 1) == pipeline
    longer = strategy.accumulate(pipeline, 2)
    assert (longer.node_batch, longer.micro_batches) == (64, 4)
    assert longer.options == {"schedule": "1f1b", "cut": "measured"}
    check_plan(longer)


def test_plan_is_launched_on_an_equal_gpu_where_cuda_does_not_show_its_own(store):
    """The story: whatever CUDA_VISIBLE_DEVICES was, the stored number was taken."""
    gpus = tuple(Gpu(nvml_index=i, cuda_index=i, name="equal", uuid=f"GPU-{i}") for i in range(2))
    node = replace(FAST, gpus=gpus)
    on_second = Plan(strategy="gpu_data", node_batch=128, devices=("cuda:1",))
    store.plans.save(plan(node, plan=on_second))
    request = replace(REQUEST, plan_id=1)
    now = replace(node, gpus=(replace(gpus[0], cuda_index=None), replace(gpus[1], cuda_index=0)))
    (found,) = find_plans(store, request, {"n1": now}, SOFTWARE, remedy=REMEDY)
    part = make_local_job(request, renumber_gpus(found), Path("/runs/1")).nodes[0]
    assert (part.plan.devices, part.gpu_uuids) == (("cuda:0",), ("GPU-1",))
    hidden = replace(node, gpus=tuple(replace(gpu, cuda_index=None) for gpu in gpus))
    with pytest.raises(InvalidPlanError, match="devices=cuda:1 and CUDA shows no GPU on fast"):
        renumber_gpus(replace(found, node=hidden))
