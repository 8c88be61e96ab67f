"""A short training ends when it has shown enough, and says what it rests on."""

from __future__ import annotations

import math

import pytest
from imagined_machines import node_of
from sample_plan import CASE

from launch.errors import UseCaseError
from launch.noise_scale.estimate import NoiseScale
from launch.reports import Noted, StepDone, StepsFinished, Validated, Warned
from planner.errors import NoPlanError
from planner.plans.objective import Objective
from planner.time_to_loss.short_training import Target, measure_objective, measuring_plan
from probes.timing import Interval

RATE = Interval(median=1000.0, low=900.0, high=1100.0, count=9)
STEPS = 100
"""Of an epoch."""


def scale(width: float, value: float = 200.0) -> NoiseScale:
    return NoiseScale(
        scale=value,
        low=value * (1 - width),
        high=value * (1 + width),
        variance=value,
        square=1.0,
        measurements=50,
    )


UNCLEAR = NoiseScale(scale=None, variance=1.0, square=0.01, measurements=50)


class Recorded:
    """A training whose validation loss halves with each epoch; a step takes a second."""

    def __init__(self, noise: NoiseScale | None, *, accuracy: bool = True) -> None:
        self.now_s = 0.0
        self.noise = noise
        self.has_accuracy = accuracy
        self.first_accuracy: float | None = None
        self.is_closed = False
        self.said: list[str] = []
        self.gpus = 0

    def train(self, plan):
        self.plan = plan
        try:
            for epoch in range(100):
                for number in range(STEPS):
                    self.now_s += 1.0
                    yield StepDone(
                        step=number,
                        epoch=epoch,
                        time_s=1.0,
                        samples=plan.node_batch,
                        loss=2.0**-epoch,
                        noise=self.noise,
                    )
                yield StepsFinished(epoch=epoch, time_s=0.0)
                loss = 2.0 ** -(epoch + 1)
                accuracy = 1 - loss
                if epoch == 0 and self.first_accuracy is not None:
                    accuracy = self.first_accuracy
                yield Validated(
                    epoch=epoch,
                    samples=100,
                    loss_sum=100 * loss,
                    weight=100.0,
                    metric_sums={"accuracy": 100 * accuracy} if self.has_accuracy else {},
                    time_s=0.0,
                )
                yield None
        finally:
            self.is_closed = True

    def listen(self, report, _host=None) -> None:
        assert isinstance(report, Noted | Warned)
        self.said.append(report.message)

    def measure(self, budget_s: float = 4000.0, target: Target | None = None) -> Objective:
        return measure_objective(
            self.train,
            CASE,
            node_of(2, self.gpus),
            self.listen,
            budget_s=budget_s,
            target=target or Target(),
            clock=lambda: self.now_s,
        )


def test_a_narrow_interval_ends_it_after_an_epoch():
    training = Recorded(scale(0.1))
    found = training.measure()
    assert found.steps == STEPS
    assert (found.noise_scale, found.base_batch, found.target) == (200.0, 32, None)
    assert "200 samples (180 to 220) after 100 steps of 32" in training.said[0]


def test_a_wide_interval_takes_all_the_time():
    assert Recorded(scale(0.5)).measure(budget_s=1000).steps == 250


def test_a_machine_with_gpus_is_told_that_the_cpu_measures_the_scale():
    """The plans that were then searched ran on GPUs, and nothing said that this did not."""
    training = Recorded(scale(0.1))
    training.gpus = 1
    training.measure()
    assert set(training.plan.devices) == {"cpu"}
    assert "measured on the CPU" in training.said[0]
    assert "--budget" in training.said[0]


def test_its_batch_is_the_use_case_s_own_in_parts():
    plan = measuring_plan(CASE, 2)
    assert (plan.node_batch, plan.micro_batches, plan.threads) == (32, 4, 2)


def test_while_the_scale_is_not_clear_it_goes_on_for_half_of_the_budget():
    said = "after 500 steps, its mean gradient is not clearly above its noise: raise --budget"
    with pytest.raises(NoPlanError, match=said):
        Recorded(UNCLEAR).measure(budget_s=1000)


def test_training_without_a_measurement_is_no_basis():
    with pytest.raises(NoPlanError, match="not known after 50 steps, none is measured"):
        Recorded(None).measure(budget_s=100)


def test_target_is_reached_between_two_epochs():
    """Validation losses are 0.5, 0.25, 0.125: 0.1875 lies in the middle of the third epoch."""
    found = Recorded(scale(0.1)).measure(target=Target(loss=0.1875))
    assert found.target == "validation loss 0.1875"
    assert found.target_samples == pytest.approx(2.5 * STEPS * 32)
    assert found.predict_s(32, "none", RATE).median == pytest.approx(8.0)
    assert found.predict_s(64, "none", RATE).median == pytest.approx(16.0)


def test_target_that_is_reached_is_no_end_while_the_scale_is_not_clear():
    with pytest.raises(NoPlanError, match="not known after 500 steps"):
        Recorded(UNCLEAR).measure(budget_s=1000, target=Target(loss=0.4))


def test_target_may_be_an_accuracy():
    found = Recorded(scale(0.1)).measure(target=Target(accuracy=0.8125))
    assert found.target_samples == pytest.approx(2.5 * STEPS * 32)


def test_accuracy_that_is_no_number_has_reached_nothing():
    """The story: it was taken for the target, and the time to that was predicted from one epoch."""
    training = Recorded(scale(0.1))
    training.first_accuracy = math.nan
    found = training.measure(target=Target(accuracy=0.8125))
    assert found.target_samples == pytest.approx(2.5 * STEPS * 32)


def test_nothing_is_predicted_of_a_target_that_was_not_reached():
    found = Recorded(scale(0.1)).measure(budget_s=600, target=Target(loss=0.01))
    assert found.target_samples is None
    assert found.predict_s(32, "none", RATE) is None


def test_accuracy_that_nobody_tells_is_refused():
    training = Recorded(scale(0.1), accuracy=False)
    with pytest.raises(UseCaseError, match="metrics\\(\\) without accuracy"):
        training.measure(target=Target(accuracy=0.9))
