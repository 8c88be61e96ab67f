"""Permits: a step takes one, and the end of a turn is always noticed."""

from __future__ import annotations

import os
import threading

import pytest

from launch.workers.step_permits import StepPermits, grant_steps, open_permits


@pytest.fixture
def descriptor():
    opened = open_permits()
    yield opened
    os.close(opened)


def test_grant_holds_as_many_steps_as_it_says(descriptor):
    permits = StepPermits(descriptor)
    grant_steps(descriptor, 3)
    permits.take()
    assert [permits.try_take() for _ in range(3)] == [True, True, False]


def test_end_of_a_turn_is_noticed_though_the_next_one_is_granted_already(descriptor):
    """A worker that was stopped right after its step must not time its pause as a step."""
    permits = StepPermits(descriptor)
    grant_steps(descriptor, 1)
    permits.take()
    grant_steps(descriptor, 1)
    assert not permits.try_take()
    permits.take()


def test_worker_waits_for_the_next_grant(descriptor):
    permits = StepPermits(descriptor)
    waiting = threading.Thread(target=permits.take)
    waiting.start()
    grant_steps(descriptor, 1)
    waiting.join(timeout=60)
    assert not waiting.is_alive()
