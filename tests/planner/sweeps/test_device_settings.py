"""Numbers of devices that a sweep has where none are named."""

from __future__ import annotations

from imagined_machines import node_of

from planner.sweeps.device_settings import make_device_settings


def counts(cores, gpus=0, **options):
    settings = make_device_settings((), node_of(cores, gpus), **options)
    return [setting.plan.processes for setting in settings]


def test_devices_are_doubled_up_to_all_of_them():
    assert counts(6) == [1, 2, 4, 6]
    assert counts(16, gpus=3) == [1, 2, 3]


def test_there_are_no_more_of_them_than_the_smallest_batch_has_samples():
    assert counts(96, least_batch=32) == [1, 2, 4, 8, 16, 32]
    assert counts(96, least_batch=1) == [1]
    assert counts(6, least_batch=32) == [1, 2, 4, 6]
    assert counts(16, gpus=8, least_batch=3) == [1, 2]


def test_devices_that_are_named_are_all_taken():
    """So that a batch that has too few samples for one of them is refused by its name."""
    settings = make_device_settings((1, 64), node_of(96), least_batch=32)
    assert [setting.label for setting in settings] == ["1 worker", "64 workers"]
