"""The learning rate goes with the batch as the plan says."""

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


def test_rate_is_scaled_by_the_square_root_of_the_batch_where_that_is_asked_for(training):
    training.run(replace(PAIR, lr_scaling="sqrt"), "Learning", file=FILE)
    (last,) = training.reports(StepsFinished)
    assert last.learning_rates == (pytest.approx(0.0707, rel=1e-3),)


def test_training_with_twice_the_batch_is_the_one_with_twice_the_rate(training):
    scaled = training.run(replace(PAIR, lr_scaling="linear"), "Learning", file=FILE)
    faster = training.run(PAIR, "LearningTwiceAsFast", file=FILE)
    assert all(torch.equal(scaled[name], faster[name]) for name in faster)
    rates = [one.learning_rates for one in training.reports(StepsFinished)]
    assert rates == [(pytest.approx(0.1),)] * 2


def test_use_case_s_own_batch_keeps_its_rate(training):
    training.run(replace(PAIR, node_batch=16, lr_scaling="linear"), "Learning", file=FILE)
    assert training.reports(StepsFinished)[0].learning_rates == (0.05,)
