"""What a plan is worth follows from the trials of its study; what they do not say is left out."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from worth_cases import (
    ALL_CORES,
    BEST,
    BUSY,
    FACTS,
    NODE,
    ONE_CORE,
    STORED,
    TRIALS,
    beside_others,
    trial,
)

from launch.plan import Plan
from planner.plans.stored_plan import ComparedPlan
from planner.report.plans import plan_facts
from planner.trials.result import Outcome
from planner.worth.evidence import chance_above_one
from planner.worth.step_parts import split_step
from planner.worth.variations import Basis, only_difference
from planner.worth.worth import AS_IT_IS, DEFAULTS, OWN_BATCH, assess
from probes import codec
from probes.hardware import Gpu, Hardware
from probes.timing import Interval


@pytest.fixture
def worth():
    found = assess(STORED, TRIALS, FACTS, NODE)
    assert found is not None
    return found


def variation(worth, setting, other):
    return next(v for v in worth.variations if (v.setting, v.other) == (setting, other))


def test_parts_of_a_step_are_floors_from_measured_rates_and_the_rest(worth):
    assert worth.step_s == pytest.approx(3.2)
    times = {part.name: part.time_s for part in worth.step_parts}
    assert times["computing"] == pytest.approx(4e9 * 128 / 2e11)
    assert times["weights, update"] == pytest.approx(200e6 * (3 * 2 + 5) / 1.5e10)
    assert times["sum over workers"] == pytest.approx(200e6 * 3 / 1.5e10)
    assert math.fsum(times.values()) == pytest.approx(3.2)
    assert not next(part for part in worth.step_parts if part.name == "not explained").is_floor


def test_half_of_the_cores_have_half_of_the_rate():
    plan = replace(ONE_CORE, node_batch=128)
    (computing, *_) = split_step(plan, 9.0, FACTS, NODE)
    assert computing.time_s == pytest.approx(4e9 * 128 / 1e11)


def test_waiting_for_input_is_a_part_where_it_was_measured():
    parts = split_step(BEST, 4.0, None, None, input_share=0.25)
    assert [(part.name, part.time_s) for part in parts] == [
        ("waiting for input", 1.0),
        ("not explained", 3.0),
    ]
    assert split_step(BEST, 4.0, None, None, input_share=0.0) == []  # no data loader was seen


def test_floor_that_is_above_what_was_measured_is_none():
    """Rates that were probed on a busy machine let a step seem to compute in less than no time."""
    waiting, computing, *_ = split_step(BEST, 2.0, FACTS, NODE, input_share=0.25)
    assert (waiting.time_s, computing.time_s, computing.is_floor) == (0.5, 1.5, False)
    assert computing.source.startswith("less than 512 GFLOP at")


def test_nothing_is_said_of_a_device_whose_limits_are_not_measured():
    plan = replace(ONE_CORE, devices=("cuda:0",))
    assert split_step(plan, 1.0, FACTS, NODE) == []


GPU_FACTS = replace(FACTS, sample_bytes=600_000)
ON_GPU = replace(ONE_CORE, node_batch=128, devices=("cuda:0",))
TWO_GPUS = replace(
    NODE,
    gpus=tuple(
        Gpu(nvml_index=n, cuda_index=n, name="A100", pcie_generation=4, pcie_width=16)
        for n in range(2)
    ),
    speeds=replace(
        NODE.speeds,
        host_to_device_bytes_per_s=2e10,
        gpu_fp32_flop_per_s=1e14,
        gpu_bf16_flop_per_s=2e14,
        gpu_copy_bytes_per_s=1e12,
    ),
)


def times_on(plan, node=TWO_GPUS):
    """Times of the floors of a step that takes one second."""
    return {part.name: part.time_s for part in split_step(plan, 1.0, GPU_FACTS, node)[:-1]}


def test_floors_of_a_gpu_are_from_its_own_rates():
    found = assess(replace(STORED, plan=ON_GPU), [trial(0, ON_GPU, 128.0)], GPU_FACTS, TWO_GPUS)
    computing, update, copied, rest = found.step_parts
    assert (computing.name, computing.source) == ("computing", "512 GFLOP at 100 TFLOP/s")
    assert computing.time_s == pytest.approx(4e9 * 128 / 1e14)
    assert (update.name, update.time_s) == ("weights, update", pytest.approx(200e6 * 8 / 1e12))
    assert (copied.name, copied.time_s) == ("input to GPU", pytest.approx(600e3 * 128 / 2e10))
    assert (rest.name, rest.is_floor) == ("not explained", False)
    rounded = times_on(replace(ON_GPU, precision="bf16"))
    assert rounded["computing"] == pytest.approx(4e9 * 128 / 2e14)


@pytest.mark.parametrize("source", ["cache", "device"])
def test_decoded_pictures_are_no_copied_samples(source):
    """A quarter of the bytes goes to the GPU, or none."""
    assert set(times_on(replace(ON_GPU, input=source))) == {"computing", "weights, update"}


@pytest.mark.parametrize(
    ("spread", "moved"),
    [
        # Each of two replicas has weights of its own; each of two stages has a part of them.
        ({"strategy": "gpu_data", "replicas": 2}, 200e6 * 2 * (3 + 5)),
        ({"strategy": "pipeline", "micro_batches": 4}, 200e6 * (3 * 4 + 5)),
    ],
)
def test_floors_of_several_gpus_are_those_of_equal_parts(spread, moved):
    plan = replace(ON_GPU, processes=2, devices=("cuda:0", "cuda:1"), **spread)
    assert times_on(plan) == {
        "computing": pytest.approx(4e9 * 128 / 2e14),
        "weights, update": pytest.approx(moved / 2e12),
        "input to GPU": pytest.approx(600e3 * 128 / 4e10),
    }


def test_of_gpus_that_are_not_like_the_measured_one_nothing_is_said():
    first, second = TWO_GPUS.gpus
    for other in (replace(second, name="T4"), replace(second, mig_enabled=True)):
        assert split_step(ON_GPU, 1.0, GPU_FACTS, replace(TWO_GPUS, gpus=(first, other))) == []
    narrow = replace(TWO_GPUS, gpus=(first, replace(second, pcie_width=4)))
    assert set(times_on(ON_GPU, narrow)) == {"computing", "weights, update"}


def test_probe_of_an_older_version_says_nothing_of_a_gpu_but_the_way_to_it():
    document = codec.to_builtins(TWO_GPUS)
    for name in [name for name in document["speeds"] if name.startswith("gpu_")]:
        del document["speeds"][name]
    old = codec.convert(document, Hardware, source="an old probe")
    assert set(times_on(ON_GPU, old)) == {"input to GPU"}
    del document["speeds"]["host_to_device_bytes_per_s"]
    older = codec.convert(document, Hardware, source="an older probe")
    assert split_step(ON_GPU, 1.0, GPU_FACTS, older) == []


def test_runner_up_is_the_fastest_other_plan_of_this_search(worth):
    assert worth.runner_up.plan.strategy == "threads"
    assert worth.runner_up.lead.median == pytest.approx(40 / 39.9, rel=1e-3)
    assert 0.9 < worth.runner_up.certainty < 1


def test_script_is_compared_by_what_its_user_has_marked():
    own = Plan(strategy="script", node_batch=64, options={"own_settings": True, "batch": 32})
    # Two batches make a step.
    best = Plan(strategy="script", node_batch=128, loader_workers=1, options={"batch": 64})
    usual = replace(best, node_batch=64, options={"batch": 32})
    trials = [trial(0, own, 20.0), trial(1, usual, 30.0), trial(2, best, 40.0)]
    trials.append(trial(3, replace(best, loader_workers=0), 35.0))
    lead = Interval(median=2.0, low=1.9, high=2.1, count=9)
    defaults = ComparedPlan(name="defaults", plan=own, throughput_samples_per_s=20.0, speedup=lead)
    stored = replace(STORED, plan=best, comparisons=(defaults,))
    worth = assess(stored, trials, replace(FACTS, default_batch=64), NODE)
    assert {(v.setting, v.other) for v in worth.variations} == {
        ("batch", "32"),
        ("loader_workers", "0"),
    }
    names = {one.name: one for one in worth.baselines}
    assert set(names) == {AS_IT_IS, OWN_BATCH}
    # Its epochs are not known. 40 s of trials are half of 80 s of training.
    assert names[AS_IT_IS].epochs_until_paid is None
    assert names[AS_IT_IS].training_until_paid_s == pytest.approx(80)


def test_figures_until_tuning_has_paid_have_the_ends_of_the_speedup_s_interval(worth):
    sure, unsure = (
        replace(worth, baselines=(replace(worth.baselines[0], speedup=speedup),)).to_json()
        for speedup in (
            Interval(median=2.0, low=1.5, high=4.0, count=9),
            Interval(median=2.0, low=0.9, high=4.0, count=9),
        )
    )
    (one,), (other,) = sure["baselines"], unsure["baselines"]
    assert one["epochs_until_paid_ci_low"] == pytest.approx(one["epochs_until_paid"] / 3)
    assert one["epochs_until_paid_ci_high"] == pytest.approx(one["epochs_until_paid"] * 2)
    assert one["training_until_paid_s_ci_low"] == pytest.approx(
        one["training_until_paid_s"] * 2 / 3
    )
    assert other["epochs_until_paid_ci_high"] is None  # never


def test_what_the_plan_was_raced_against_counts_before_single_trials():
    lead = Interval(median=1.1, low=1.05, high=1.15, count=9)
    slower = replace(BEST, node_batch=64)
    names = {"defaults": ALL_CORES, "own_batch": ONE_CORE, "runner_up": slower}
    raced = tuple(
        ComparedPlan(name=name, plan=plan, throughput_samples_per_s=30.0, speedup=lead)
        for name, plan in names.items()
    )
    worth = assess(replace(STORED, comparisons=raced), TRIALS, FACTS, NODE)
    assert (worth.runner_up.plan, worth.runner_up.lead) == (slower, lead)
    speedups = {one.name: one.speedup.median for one in worth.baselines}
    assert speedups[DEFAULTS] == 1.1
    # Raced was another plan than this one with the usual batch: the trial of that counts.
    assert speedups[OWN_BATCH] == pytest.approx(40 / 36, rel=1e-3)
    in_turns = {one.name: one.in_turns for one in worth.baselines}
    assert (in_turns[DEFAULTS], in_turns[OWN_BATCH]) == (True, False)


@pytest.mark.parametrize(("median", "chance"), [(1.0, 0.5), (1.02, 0.975), (0.98, 0.025)])
def test_certainty_follows_from_how_far_the_interval_is_from_one(median, chance):
    value = Interval(median=median, low=median / 1.02, high=median * 1.02, count=9)
    assert chance_above_one(value) == pytest.approx(chance, abs=0.01)


def test_settings_that_were_tried_have_their_interval(worth):
    found = variation(worth, "memory_format", "contiguous")
    assert (found.value, found.basis) == ("channels_last", Basis.MEASURED)
    assert found.speed.median == pytest.approx(0.95)
    assert found.speed.low < found.speed.median < found.speed.high


def test_a_trial_that_was_ended_for_being_slow_shows_what_a_setting_does():
    ended = trial(9, replace(BEST, fused_optimizer=False), 30.0)
    ended = replace(ended, result=replace(ended.result, outcome=Outcome.SLOWER))
    found = variation(assess(STORED, [*TRIALS, ended], FACTS, NODE), "fused_optimizer", "false")
    assert (found.basis, found.speed.median) == (Basis.MEASURED, pytest.approx(0.75))


def test_of_batches_the_nearest_that_was_tried_counts_and_else_the_line(worth):
    assert variation(worth, "node_batch", "64").basis is Basis.MEASURED
    above = variation(worth, "node_batch", "256")
    assert above.basis is Basis.LINE
    line = STORED.step_time.step_time
    assert above.speed.median == pytest.approx(256 / line.at(256) * line.at(128) / 128)
    assert not any(v.setting == "node_batch" and v.other == "32" for v in worth.variations)


def test_a_change_that_only_other_plans_made_counts_where_they_were_raced():
    """Of rates of different moments it said that another setting was three times as fast."""
    fused = trial(8, replace(ALL_CORES, fused_optimizer=True), 33.6)
    apart = assess(STORED, [*TRIALS, fused], FACTS, NODE)
    assert variation(apart, "fused_optimizer", "false").basis is Basis.UNKNOWN
    raced = [in_rounds(one) if one.number == 1 else one for one in TRIALS]
    found = assess(STORED, [*raced, in_rounds(fused)], FACTS, NODE)
    change = variation(found, "fused_optimizer", "false")
    assert change.basis is Basis.OTHER_PLANS
    assert change.speed.median == pytest.approx(32 / 33.6, rel=1e-2)
    assert change.speed.low < change.speed.median < change.speed.high
    busy = in_rounds(fused)
    slowed = replace(busy.result, measurement=beside_others(busy.result.measurement))
    beside = assess(STORED, [*raced, replace(busy, result=slowed)], FACTS, NODE)
    wide = variation(beside, "fused_optimizer", "false").speed
    assert wide.low == pytest.approx(change.speed.low / BUSY.most_slowed)
    assert wide.high == pytest.approx(change.speed.high)  # the story: it was widened as much


def test_a_change_that_does_not_do_the_same_in_all_plans_has_a_wide_interval():
    """The story: of 10 % less and 30 % more, each sure to 1 %, it made 8 % more, sure to 1 %."""
    pairs = [(ALL_CORES, 0.9), (replace(ALL_CORES, node_batch=64), 1.3)]
    raced = []
    for number, (plan, factor) in enumerate(pairs):
        raced.append(in_rounds(trial(20 + number, plan, 32 * factor)))
        raced.append(in_rounds(trial(30 + number, replace(plan, fused_optimizer=True), 32.0)))
    found = assess(STORED, [TRIALS[6], *raced], FACTS, NODE)
    change = variation(found, "fused_optimizer", "false")
    assert (change.basis, change.speed.count) == (Basis.OTHER_PLANS, 2)
    assert change.speed.median == pytest.approx(math.sqrt(0.9 * 1.3), rel=1e-2)
    assert change.speed.low < 0.9
    assert change.speed.high > 1.3


def in_rounds(one):
    measured = one.result.measurement
    measured = replace(measured, rounds=tuple(range(len(measured.samples_s))))
    return replace(one, result=replace(one.result, measurement=measured))


def test_a_line_that_misses_the_plan_s_own_rate_is_not_used():
    """Trials with other batches, of a quieter moment, gave a step half of the time it took."""
    slower = replace(STORED, throughput_samples_per_s=Interval(median=20, low=19, high=21, count=9))
    found = assess(slower, TRIALS, FACTS, NODE)
    assert not any(one.basis is Basis.LINE for one in found.variations)
    said = dict(plan_facts(slower, (), ()))["step time"]
    assert said.startswith("unclear: by trials with batches of 64, 128 a step of 128 takes 3 s, by")


def test_what_nothing_is_known_of_is_not_tried(worth):
    found = variation(worth, "fused_optimizer", "false")
    assert (found.speed, found.basis) == (None, Basis.UNKNOWN)


def test_what_no_search_tries_by_itself_is_not_tried_where_the_strategy_knows_it(worth):
    assert variation(worth, "onednn_linear", "true").basis is Basis.UNKNOWN
    staged = replace(BEST, strategy="pipeline", replicas=1, micro_batches=2)
    alone = replace(BEST, strategy="sequential", processes=1, replicas=1, compile=True)
    of_stages, of_one = (
        assess(replace(STORED, plan=plan), [trial(9, plan, 30.0)], FACTS, NODE)
        for plan in (staged, alone)
    )
    for found in (worth, of_stages):
        others = {one.other for one in found.variations if one.setting == "wait_policy"}
        assert others == {"active", "passive"}
    settings = {one.setting for one in of_one.variations}
    assert "allocator" in settings
    assert not settings & {"onednn_linear", "wait_policy"}


def test_what_the_strategy_of_the_plan_refuses_is_no_variation():
    """The story: of a plan on two GPUs it was said that a recorded step was not tried."""
    facts = replace(FACTS, can_compile=True)
    on_gpus = Plan(
        strategy="gpu_data",
        node_batch=128,
        processes=2,
        replicas=2,
        devices=("cuda:0", "cuda:1"),
    )
    staged = replace(BEST, strategy="pipeline", replicas=1, micro_batches=2)
    settings = []
    for plan, node in ((on_gpus, TWO_GPUS), (staged, NODE)):
        found = assess(replace(STORED, plan=plan), [trial(9, plan, 30.0)], facts, node)
        settings.append({one.setting for one in found.variations})
    of_gpus, of_stages = settings
    assert "compile" in of_gpus
    assert "cuda_graph" not in of_gpus
    assert "memory_format" in of_stages
    assert "compile" not in of_stages


def test_baselines_are_known_by_their_settings(worth):
    plans = {one.name: one.plan for one in worth.baselines}
    assert plans == {
        "one core": ONE_CORE,
        DEFAULTS: ALL_CORES,
        OWN_BATCH: replace(BEST, node_batch=32),
    }


def test_threads_on_a_part_of_the_cores_are_nobodys_default():
    wide = replace(NODE, cpu=replace(NODE.cpu, usable_cores=64))
    names = [one.name for one in assess(STORED, TRIALS, FACTS, wide).baselines]
    assert DEFAULTS not in names


def test_tuning_has_paid_after_the_epochs_that_save_its_time(worth):
    assert (worth.tuning_s, worth.num_trials) == (70.0, 7)
    defaults = next(one for one in worth.baselines if one.name == DEFAULTS)
    saved_s = 3200 / 32 - 3200 / 40
    assert defaults.epochs_until_paid == pytest.approx(70 / saved_s)


def test_a_plan_that_is_no_faster_never_pays():
    slower = [*TRIALS[:6], trial(6, BEST, 19.0)]
    assert {one.epochs_until_paid for one in assess(STORED, slower, FACTS, NODE).baselines} == {
        None
    }


def test_a_database_of_an_older_release_has_less_to_say():
    found = assess(STORED, TRIALS, None, None)
    assert found.step_parts == ()
    assert [one.epochs_until_paid for one in found.baselines] == [None, None]
    assert assess(STORED, [], None, None) is None


def test_everything_is_plain_values_for_scripts(worth):
    document = json.loads(json.dumps(worth.to_json(), allow_nan=False))
    assert document["runner_up"]["certainty"] == worth.runner_up.certainty
    assert document["variations"][0]["basis"] in ("measured", "line", "other_plans")
    assert {one["name"] for one in document["baselines"]} >= {DEFAULTS}


def test_plans_that_differ_in_two_settings_are_no_neighbours():
    assert only_difference(BEST, replace(BEST, processes=1, replicas=1)) == "layout"
    assert only_difference(BEST, replace(BEST, options={"cut": "measured"})) == "cut"
    assert only_difference(BEST, replace(BEST, node_batch=64, micro_batches=2)) is None
    assert only_difference(BEST, replace(BEST, strategy="threads")) is None
