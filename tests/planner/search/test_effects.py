"""What is learned of settings from trials, held against known effects."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from imagined_machines import CASE, Machine, node_of

from launch.plan import Plan
from planner.search.effects import Effects, ObservedTime, TermColumns
from planner.search.prior import Prior
from probes.hardware import Speeds
from probes.timing import NORMAL_95

PLAIN = Plan(strategy="processes", node_batch=64, processes=2, replicas=2)


def columns() -> TermColumns:
    return TermColumns(Prior(CASE, node_of(2), frozenset()).belief)


def observed(machine: Machine, plan: Plan) -> ObservedTime:
    return ObservedTime.of(plan, machine.sample_s(plan))


def predict(effects: Effects, plan: Plan) -> tuple[float, float]:
    mean, deviation = effects.predict([plan])
    return float(mean[0]), float(deviation[0])


def test_effect_of_a_setting_is_what_it_changed():
    fast = replace(PLAIN, allocator="retain")
    known = [ObservedTime(PLAIN, -3.0), ObservedTime(fast, -3.1)] * 4
    effects = Effects(columns(), known)
    changed = predict(effects, fast)[0] - predict(effects, PLAIN)[0]
    assert changed == pytest.approx(-0.1, abs=0.02)


def test_effect_counts_for_other_strategies_with_more_doubt():
    fast = replace(PLAIN, allocator="retain")
    other = Plan(strategy="threads", node_batch=64, threads_per_process=2)
    known = [ObservedTime(PLAIN, -3.0), ObservedTime(fast, -3.2), ObservedTime(other, -3.0)]
    effects = Effects(columns(), known)
    mean, doubt = predict(effects, replace(other, allocator="retain"))
    assert -3.2 < mean < -3.05
    assert doubt > predict(effects, fast)[1]


def test_fixed_part_of_a_step_is_found_from_two_batches():
    """`T(n) = a + b n`, here with a = 16 b: what takes 1.5 at 32 takes 1.0625 at 256."""
    known = [
        ObservedTime(replace(PLAIN, node_batch=n), math.log(1 + 16 / n)) for n in (32, 64, 128)
    ]
    mean, doubt = predict(Effects(columns(), known * 2), replace(PLAIN, node_batch=512))
    assert mean == pytest.approx(math.log(1 + 16 / 512), abs=0.05)
    assert doubt < 0.08


def test_batch_follows_from_what_two_batches_show():
    """`T(n) = a + b n`: with a fixed part of 30 % of a step of 32, 256 is worth its trial; with one
    of 0.1 % it is not."""
    for fixed, is_large in ((0.3, True), (0.001, False)):
        machine = Machine(parts=2, fixed=fixed)
        known = [observed(machine, replace(PLAIN, node_batch=n)) for n in (32, 64)]
        effects = Effects(columns(), known)
        here, large = (predict(effects, replace(PLAIN, node_batch=n))[0] for n in (64, 256))
        assert (large < here + math.log(0.93)) is is_large


def test_time_of_a_plan_that_was_not_tried_is_known_with_its_doubt():
    machine = Machine(parts=2, fixed=0.1, retain=0.88)
    other = Plan(strategy="threads", node_batch=64, threads_per_process=2)
    changes = ({}, {"allocator": "retain"}, {"node_batch": 128}, {"memory_format": "channels_last"})
    tried = [replace(other, **change) for change in changes] + [PLAIN]
    untried = replace(PLAIN, memory_format="channels_last")
    _, before = predict(Effects(columns(), []), untried)
    effects = Effects(columns(), [observed(machine, plan) for plan in tried])
    mean, after = predict(effects, untried)
    assert after < before
    assert abs(math.log(machine.sample_s(untried)) - mean) < NORMAL_95 * after
    known, _ = predict(effects, PLAIN)
    assert math.exp(known) == pytest.approx(machine.sample_s(PLAIN), rel=0.03)


def test_one_trial_with_a_small_batch_does_not_tell_replicas_from_their_sums():
    """The story: on 64 cores, 64 replicas with a sample each left all layouts of many untried."""
    alone = Plan(strategy="threads", node_batch=128, threads_per_process=8)
    split = Plan(strategy="processes", node_batch=32, processes=8, replicas=8)
    known = [ObservedTime(replace(alone, node_batch=n), math.log(1 + 8 / n)) for n in (32, 128)]
    known.append(ObservedTime(split, math.log(0.8 * (1 + 64 / 32))))
    mean, doubt = predict(Effects(columns(), known), replace(split, node_batch=512))
    assert mean - doubt < math.log(0.8 * (1 + 64 / 512)) < mean + doubt


def test_what_micro_batches_gain_is_expected_of_more_and_in_other_strategies():
    large = replace(PLAIN, node_batch=1024)
    other = Plan(strategy="threads", node_batch=1024, threads_per_process=2)
    known = [ObservedTime(large, -3.0), ObservedTime(replace(large, micro_batches=2), -3.08)] * 3
    effects = Effects(columns(), [*known, ObservedTime(other, -3.0)])
    assert predict(effects, replace(large, micro_batches=4))[0] < -3.05
    assert predict(effects, replace(other, micro_batches=2))[0] < -3.01


def test_what_threads_of_one_copy_do_not_share_several_copies_are_expected_to_gain():
    """The story: on 64 cores, searches ended with few copies, as the first two gain least."""
    alone = Plan(strategy="sequential", node_batch=1024)
    shared = replace(alone, threads_per_process=8)
    split = Plan(strategy="processes", node_batch=1024, processes=8, replicas=8)
    gains = []
    for serial in (0.005, 0.1):
        log_s = math.log(serial + (1 - serial) / 8)
        effects = Effects(columns(), [ObservedTime(alone, 0.0), ObservedTime(shared, log_s)] * 2)
        gains.append(predict(effects, shared)[0] - predict(effects, split)[0])
    assert gains[0] + 0.05 < gains[1]


def test_large_models_and_slow_calls_are_believed_to_gain_from_large_batches_before_any_trial():
    """The story: a perceptron's calls cost as much as 18 samples, and two were believed."""
    node = replace(node_of(2), speeds=Speeds(copy_all_cores_bytes_per_s=1e10))
    gains = []
    for parameter_bytes, calls_s in ((1_000_000, None), (228_000_000, None), (1_000_000, 0.4)):
        case = replace(CASE, sample_s=0.02, parameter_bytes=parameter_bytes, calls_s=calls_s)
        effects = Effects(TermColumns(Prior(case, node, frozenset()).belief), [])
        small, large = (predict(effects, replace(PLAIN, node_batch=n))[0] for n in (32, 256))
        gains.append(small - large)
    assert gains[0] < 0.1 < 0.2 < min(gains[1:])


def test_noise_is_estimated_from_trials_of_one_plan():
    generator = np.random.default_rng(0)
    for deviation, bounds in ((0.005, (0.005, 0.01)), (0.1, (0.08, 0.16))):
        known = [ObservedTime(PLAIN, x) for x in generator.normal(-3, deviation, 30)]
        assert bounds[0] <= Effects(columns(), known).noise <= bounds[1]


def test_trial_of_another_machine_counts_as_a_part_of_one():
    fast = replace(PLAIN, memory_format="channels_last")
    here = ObservedTime(PLAIN, -3.0)
    gains = []
    for weight in (0.02, 0.5):
        there = [
            ObservedTime(PLAIN, -5.0, weight=weight, study="other"),
            ObservedTime(fast, -5.2, weight=weight, study="other"),
        ]
        effects = Effects(columns(), [here, *there])
        gains.append(predict(effects, PLAIN)[0] - predict(effects, fast)[0])
        assert predict(effects, PLAIN)[0] == pytest.approx(-3.0, abs=0.05)
    assert 0 < gains[0] < gains[1] < 0.2


def test_without_trials_what_is_believed_counts():
    slow = Plan(strategy="sequential", node_batch=64)
    wide = Plan(strategy="threads", node_batch=64, threads_per_process=2)
    effects = Effects(columns(), [])
    assert predict(effects, wide)[0] < predict(effects, slow)[0] - 0.3
