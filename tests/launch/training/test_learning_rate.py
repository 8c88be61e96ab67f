"""The learning rate goes with the batch as the plan says.

By which factor, tests/launch/noise_scale has; one by the square root trains in tests of the API.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import noise_cases
import pytest
import torch

from launch.plan import Plan
from launch.reports import StepsFinished

FILE = Path(noise_cases.__file__)
PAIR = Plan(strategy="processes", processes=2, replicas=2, node_batch=32)
"""Twice the batch of its use case."""


def test_training_with_twice_the_batch_is_the_one_with_twice_the_rate(training):
    scaled = training.run(replace(PAIR, lr_scaling="linear"), "Learning", file=FILE)
    faster = training.run(PAIR, "LearningTwiceAsFast", file=FILE)
    assert all(torch.equal(scaled[name], faster[name]) for name in faster)
    rates = [one.learning_rates for one in training.reports(StepsFinished)]
    assert rates == [(pytest.approx(0.1),)] * 2
