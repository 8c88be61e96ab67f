"""What another batch would mean follows from the step times and the noise scale."""

from __future__ import annotations

from dataclasses import replace

import pytest
from worth_cases import BEST, FACTS, NODE, OBJECTIVE, STORED, TRIALS

from launch.noise_scale.estimate import NoiseScale
from planner.plans.measured_steps import StepPoint, steps_from_points
from planner.report.plans import objective_facts
from planner.report.table import Terminal
from planner.report.worth import worth_text
from planner.worth.batch_advice import MeasuredNoise, advise
from planner.worth.worth import assess
from probes.timing import Interval

NOISE = NoiseScale(scale=96.0, low=80.0, high=120.0, variance=96.0, square=1.0, measurements=50)
MEASURED = MeasuredNoise(noise=NOISE, training_id=3, epoch=2)
RATE = STORED.throughput_samples_per_s
STEPS = steps_from_points(
    [StepPoint(node_batch=batch, step_s=0.9 + 0.018 * batch) for batch in (32, 64, 128)]
)


def test_time_to_a_loss_is_that_of_the_samples_worth():
    plan = replace(BEST, lr_scaling="linear")
    advice = advise(plan, RATE, STEPS, MEASURED, 32)
    by_batch = {one.node_batch: one for one in advice.choices}
    assert list(by_batch) == [32, 64, 128, 256, 512]
    assert by_batch[128].time_to_loss == 1.0
    assert by_batch[32].worth == 1.0
    assert by_batch[128].worth == pytest.approx((96 + 32) / (96 + 128))
    expected = (0.5 + 0.32) / 32 / ((0.5 + 1.28) / 128 / by_batch[128].worth)
    assert by_batch[32].time_to_loss == pytest.approx(expected)


def test_kept_learning_rate_makes_each_step_worth_one():
    advice = advise(BEST, RATE, STEPS, MEASURED, 32)
    by_batch = {one.node_batch: one for one in advice.choices}
    assert by_batch[512].worth == pytest.approx(32 / 512)
    assert min(advice.choices, key=lambda one: one.time_to_loss).node_batch == 32


def test_small_batches_are_judged_as_in_a_search_by_time_to_loss():
    """After the first epoch of MNIST the scale was 0.2: a batch of 16 counted as twice as good."""
    early = replace(NOISE, scale=0.2, low=0.16, high=0.25)
    advice = advise(replace(BEST, node_batch=32), RATE, STEPS, replace(MEASURED, noise=early), 32)
    objective = replace(OBJECTIVE, noise_scale=0.2, noise_low=0.16, noise_high=0.25)
    worths = {one.node_batch: one.worth for one in advice.choices}
    assert worths == {batch: objective.efficiency(batch, "none") for batch in worths}
    assert worths[16] < 2


def test_advice_is_as_unsure_as_the_noise_scale():
    unsure = replace(MEASURED, noise=replace(NOISE, low=16.0, high=1000.0))
    plan = replace(BEST, lr_scaling="linear")
    by_batch = {one.node_batch: one for one in advise(plan, RATE, STEPS, unsure, 32).choices}
    assert by_batch[128].time_to_loss_ci_low == by_batch[128].time_to_loss_ci_high == 1.0
    assert by_batch[256].worth_ci_low == pytest.approx((16 + 32) / (16 + 256))
    assert by_batch[256].worth_ci_high == pytest.approx((1000 + 32) / (1000 + 256))
    assert by_batch[256].time_to_loss_ci_low < 1 < by_batch[256].time_to_loss_ci_high


def test_no_batch_is_recommended_that_is_not_shown_to_be_sooner():
    unsure = replace(MEASURED, noise=replace(NOISE, low=16.0, high=1000.0))
    plan = replace(BEST, lr_scaling="linear")
    stored = replace(STORED, step_time=STEPS, plan=plan)
    text = worth_text(assess(stored, TRIALS, FACTS, NODE, unsure), Terminal(width=200))
    assert "no other batch is shown to be sooner at a loss than the plan's" in text
    sure = replace(MEASURED, noise=replace(NOISE, scale=1e6, low=9e5, high=1.1e6))
    text = worth_text(assess(stored, TRIALS, FACTS, NODE, sure), Terminal(width=200))
    assert "a batch of 512 is soonest at a loss" in text


def test_no_batch_is_sooner_by_less_than_the_doubt_in_the_plans_rate():
    """A kept learning rate leaves no doubt in the worth, so intervals had no width at all."""
    loose = Interval(median=40.0, low=25.0, high=50.0, count=4)

    def quarter(rate):
        (choice, *_) = advise(BEST, rate, STEPS, MEASURED, 32).choices
        return choice

    assert quarter(loose).node_batch == 32
    assert quarter(loose).time_to_loss == quarter(RATE).time_to_loss < 1
    assert quarter(RATE).time_to_loss_ci_low < quarter(RATE).time_to_loss
    wide = quarter(loose)
    assert wide.time_to_loss / wide.time_to_loss_ci_low == pytest.approx(40 / 25)
    assert wide.time_to_loss_ci_high / wide.time_to_loss == pytest.approx(40 / 25)


@pytest.mark.parametrize(
    ("steps", "noise", "reason"),
    [
        (None, MEASURED, "the step time was not measured with other batches"),
        (
            steps_from_points(STEPS.points[:1]),
            MEASURED,
            "the step time was not measured with other batches",
        ),
        (
            steps_from_points([replace(p, step_s=p.step_s / 2) for p in STEPS.points]),
            MEASURED,
            "step times with other batches contradict the plan's own rate: tune again",
        ),
        (STEPS, None, "no training of this use case with these data has measured the noise scale"),
        (
            STEPS,
            replace(MEASURED, noise=replace(NOISE, scale=None, low=None, high=None)),
            "the noise scale was unclear after epoch 2 of training 3",
        ),
        (
            STEPS,
            replace(MEASURED, noise=replace(NOISE, scale=0.0, low=0.0)),
            "the noise scale was 0 after epoch 2 of training 3",
        ),
    ],
)
def test_where_other_batches_are_not_known_the_reason_is_a_line(steps, noise, reason):
    """The table was left out, and nothing said why."""
    worth = assess(replace(STORED, step_time=steps), TRIALS, FACTS, NODE, noise)
    text = worth_text(worth, Terminal(width=200))
    assert "WORTH OF A SAMPLE" not in text
    assert [line for line in text.splitlines() if f"not known: {reason}" in line]
    assert worth.to_json()["batches_unknown"].startswith(reason)


def test_worth_of_a_plan_has_the_advice_beside_throughput():
    stored = replace(STORED, step_time=STEPS, plan=replace(BEST, lr_scaling="sqrt"))
    worth = assess(stored, TRIALS, FACTS, NODE, MEASURED)
    assert worth.baselines == assess(STORED, TRIALS, FACTS, NODE).baselines
    text = worth_text(worth, Terminal(width=200))
    assert "WORTH OF A SAMPLE" in text
    assert "not known" not in text
    assert worth.to_json()["batches_unknown"] is None
    assert "96.0 (80.0 to 120) samples after epoch 2 of training 3" in text
    assert worth.to_json()["batches"]["lr_scaling"] == "sqrt"
    assert assess(STORED, TRIALS, FACTS, NODE).to_json()["batches"] is None


def test_plan_with_an_objective_has_no_runner_up_in_samples_a_second():
    assert assess(STORED, TRIALS, FACTS, NODE).runner_up is not None
    assert assess(replace(STORED, objective=OBJECTIVE), TRIALS, FACTS, NODE).runner_up is None


def test_worth_and_predicted_time_of_an_objective_have_intervals():
    """ "worth 0.53" and "reached after about 3m" stood there alone."""
    reached = {"target": "validation loss 0.3", "target_samples": 4000.0}
    objective = replace(OBJECTIVE, noise_low=60.0, noise_high=288.0, **reached)
    rate = Interval(median=100.0, low=80.0, high=125.0, count=9)
    plan = replace(BEST, node_batch=64, lr_scaling="linear")
    stored = replace(STORED, plan=plan, objective=objective, throughput_samples_per_s=rate)
    facts = dict(objective_facts(stored))
    assert "is worth 0.80 (0.74 to 0.91) of one in 32" in facts["worth"]
    assert (
        facts["target"] == "validation loss 0.3: reached after about 50s (39s to 1m 3s), predicted"
    )
