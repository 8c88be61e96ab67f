"""Trainings that take turns: a fault of ours is not the peer's."""

from __future__ import annotations

from itertools import chain, repeat

import pytest

from launch.reports import StepDone
from planner.cancellation import Cancellation
from planner.errors import TrainingFailedError
from planner.peer_runs.trainings import OwnTrainingOnHosts

STEP = {"epoch": 1, "time_s": 0.1, "samples": 32}


class Job:
    """A job whose loss is NaN from its second step on."""

    is_over = False

    def __init__(self):
        losses = chain([1.0], repeat(float("nan")))
        self._reports = (StepDone(step=n, loss=loss, **STEP) for n, loss in enumerate(losses, 1))

    def next_report(self, timeout_s):
        return next(self._reports)


class Workers:
    """Workers that stop and go on as they are told."""

    def stop(self):
        return []

    def proceed(self):
        pass


def test_loss_of_ours_on_hosts_that_is_not_finite_is_a_failure_of_ours():
    """It was stored as that of the peer that took turns with it."""
    limits = {"start_limit_s": 60.0, "step_limit_s": 60.0}
    ours = OwnTrainingOnHosts(Job(), Workers(), Cancellation(), **limits)
    with pytest.raises(TrainingFailedError, match="our own training: its loss is nan"):
        ours.make_steps(3)
