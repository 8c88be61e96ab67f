"""Each host's plan and share become one job; what is predicted of it is said in words."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from launch.errors import InvalidPlanError
from launch.job import Job
from launch.noise_scale.estimate import COST_LIMIT
from launch.plan import Plan
from launch.strategies import check_plan, load_strategy
from launch.workload import Workload
from planner.cluster.links import HostLink, MeasuredLinks
from planner.cluster.node_choice import TIE, choose_nodes
from planner.cluster.sync_cost import SyncCostModel
from planner.errors import NoPlanError, StalePlanError
from planner.input_cost.epochs import InputCost
from planner.jobs.batch_limit import largest_batch
from planner.jobs.host_choice import cluster_nodes
from planner.jobs.making import (
    LaunchRequest,
    accumulate,
    find_plans,
    make_job,
    make_local_job,
    share_input,
)
from planner.plans.measured_steps import StepPoint, steps_from_points
from planner.plans.stored_plan import StoredPlan
from planner.report.node_choice import (
    SHARE_COLUMNS,
    SUBSET_COLUMNS,
    choice_json,
    choice_lines,
    share_rows,
    subset_rows,
)
from planner.report.table import Terminal, render_table
from planner.store import Store
from planner.trials.result import Outcome, Role, TrialResult
from planner.tuning.study import Study
from probes import codec
from probes.hardware import CoreLimit, Cpu, DataSpeed, Hardware, Memory
from probes.timing import Interval, Measurement

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
SOFTWARE = {"python": "3.11.7", "torch": "2.15.0", "ddlplan": "0.1.0"}
REQUEST = LaunchRequest(workload=Workload(use_case="simplebig"))
REMEDY = "ddlplan tune --use-case simplebig --hosts hosts.txt"
GIB = 2**30


def hardware(name: str, cores: int = 2) -> Hardware:
    cpu = Cpu(
        architecture="x86_64",
        logical_cores=cores,
        usable_cores=cores,
        core_ids=tuple(range(cores)),
        limits=(CoreLimit(source="test", cores=cores),),
    )
    return Hardware(node=name, cpu=cpu, memory=Memory(total_bytes=2**34, usable_bytes=2**34))


def plan(node: Hardware, samples_per_s: float = 40.0, **changes) -> StoredPlan:
    step_s = 128 / samples_per_s
    whole = StoredPlan(
        use_case="simplebig",
        node=node.node,
        fingerprint=node.fingerprint(),
        plan=Plan(strategy="threads", node_batch=128, threads_per_process=node.cpu.usable_cores),
        throughput_samples_per_s=Interval(
            median=samples_per_s, low=samples_per_s, high=samples_per_s, count=9
        ),
        speedup=None,
        baseline=None,
        peak_memory_bytes=2 * GIB,
        step_time=steps_from_points(
            [
                StepPoint(node_batch=32, step_s=step_s / 4, peak_memory_bytes=GIB),
                StepPoint(node_batch=128, step_s=step_s, peak_memory_bytes=2 * GIB),
            ]
        ),
        gradient_bytes=228_000_000,
        begins_early=True,
        created_at=NOON,
        software=SOFTWARE,
    )
    return replace(whole, **changes)


FAST, SLOW = hardware("fast", cores=4), hardware("slow", cores=1)
NODES = {"n1": FAST, "n2": SLOW}


@pytest.fixture
def store(tmp_path):
    with Store.open(str(tmp_path / "planner.db")) as store:
        yield store


@pytest.fixture
def both(store):
    store.plans.save(plan(FAST, 80.0))
    store.plans.save(plan(SLOW, 20.0))
    return find_plans(store, REQUEST, NODES, SOFTWARE, remedy=REMEDY)


def exchange(bytes_per_s: float = 1e9) -> SyncCostModel:
    link = HostLink(first="n1", second="n2", latency_s=1e-4, bytes_per_s=bytes_per_s)
    return SyncCostModel(
        MeasuredLinks(hosts=("n1", "n2"), fingerprints=("", ""), measured_at=NOON, links=(link,))
    )


def verdict_of(plans, network=None, **settings):
    return choose_nodes([p.cluster_node() for p in plans], network, 228_000_000, **settings)


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
    store.plans.save(plan(SLOW, software=SOFTWARE | {"torch": "1.0.0"}))
    with pytest.raises(StalePlanError, match=r"plan 2 is stale on n2, made with torch 1.0.0"):
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


def test_steps_of_an_older_plan_are_those_of_its_study(store):
    study = Study(
        use_case="simplebig",
        node="fast",
        fingerprint=FAST.fingerprint(),
        precision="fp32",
        software=SOFTWARE,
        data="photos",
        seed=0,
    )
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


def point(batch, peak):
    return StepPoint(node_batch=batch, step_s=batch / 40, peak_memory_bytes=peak)


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


def said(verdict) -> str:
    return "\n".join(choice_lines(verdict, "ddlplan probe --hosts hosts.txt"))


def test_what_each_node_is_worth_is_said(both):
    text = said(verdict_of(both, exchange()))
    assert text.startswith("n1, n2 train together: ")
    assert "n2 adds 18 %" in text


def test_node_that_would_slow_the_job_is_named(both):
    text = said(verdict_of(both, exchange(5e7)))
    assert text.startswith("n1 alone is fastest: 80.0 samples/s predicted")
    assert "leave n2 out: it would slow the job by " in text


def test_hosts_that_the_user_insists_on_are_used_and_their_price_is_named(both):
    text = said(verdict_of(both, exchange(5e7), all_hosts=True))
    assert "all hosts are used because that was asked for: n1 alone would be " in text
    assert "n2 slows the job by " in text


def test_fewer_hosts_that_would_be_as_fast_are_named_without_a_number(both):
    rates = (5e7 * 1.005**i for i in range(1000))
    verdicts = (verdict_of(both, exchange(rate), all_hosts=True) for rate in rates)
    text = said(next(found for found in verdicts if 0 < found.gains[1].gain < TIE))
    assert "n1 alone would be as fast" in text
    assert "n2 adds less than 2 %, which none can tell" in text


def test_network_that_was_not_measured_is_said_with_the_way_out(both):
    text = said(verdict_of(both))
    assert text.startswith("all 2 hosts are used, at most 99.9 samples/s")
    assert "ddlplan probe --hosts hosts.txt" in text


def test_tables_show_shares_and_subsets(both):
    verdict = verdict_of(both, exchange())
    shares = render_table(share_rows(both, verdict), SHARE_COLUMNS, Terminal())
    assert [line.split()[0] for line in shares.splitlines()] == ["HOST", "n1", "n2"]
    subsets = render_table(subset_rows(verdict), SUBSET_COLUMNS, Terminal()).splitlines()
    assert len(subsets) == 4
    assert subsets[1].startswith("*  n1 n2")
    left_out = verdict_of(both, exchange(1e6))
    assert "none" in render_table(share_rows(both, left_out), SHARE_COLUMNS, Terminal())


def test_node_choice_in_json_has_every_subset(both):
    document = choice_json(verdict_of(both, exchange()))
    assert document["chosen"]["hosts"] == ["n1", "n2"]
    assert sum(document["chosen"]["node_batches"]) == document["chosen"]["global_batch"] == 256
    assert len(document["subsets"]) == 3
    assert [node["host"] for node in document["nodes"]] == ["n1", "n2"]
