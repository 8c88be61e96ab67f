"""Rows of sweeps: a sweep goes on with its points, and every point is there as it ended."""

from __future__ import annotations

from dataclasses import replace
from math import nan

import pytest
from sweep_samples import failed_point, sample_point, sample_record

from planner.errors import ConflictError, NoSweepError
from planner.records.event_record import Topic


def test_same_settings_find_the_sweep_with_its_points(store):
    begun = store.sweeps.begin(sample_record([32, 64]), fresh=False)
    points = store.sweeps.add_points(begun.record.id, sample_point(32))
    again = store.sweeps.begin(sample_record([32, 64]), fresh=False)
    assert again.record == replace(begun.record, num_points=1)
    assert again.points == points


def test_other_settings_begin_another_sweep(store):
    record = sample_record([32, 64])
    every = [
        record,
        replace(record, seed=1),
        replace(record, epochs=3),
        replace(record, batches=(32,)),
        replace(record, data="/d"),
        replace(record, use_case_digest="x"),
    ]
    begun = [store.sweeps.begin(one, fresh=False).record.id for one in every]
    assert len(set(begun)) == 6


def test_fresh_begins_anew_and_is_what_is_found_from_then_on(store):
    record = sample_record([32, 64])
    first = store.sweeps.begin(record, fresh=False)
    store.sweeps.add_points(first.record.id, sample_point(32))
    fresh = store.sweeps.begin(record, fresh=True)
    assert not fresh.points
    assert store.sweeps.begin(record, fresh=False).record.id == fresh.record.id
    assert [one.num_points for one in store.sweeps.find()] == [0, 1]


def test_sweep_is_finished_with_its_last_point(store):
    sweep_id = store.sweeps.begin(sample_record([32]), fresh=False).record.id
    store.sweeps.add_points(sweep_id, sample_point(32, 0))
    assert not store.sweeps.get(sweep_id).record.is_finished
    store.sweeps.add_points(sweep_id, failed_point(32, 1))
    assert store.sweeps.get(sweep_id).record.is_finished
    assert store.events.after(0)[-1].topic is Topic.SWEEP


def test_points_of_a_batch_are_stored_all_or_none(store):
    """The story: killed between two of them, a sweep trained the second one again, alone."""
    sweep_id = store.sweeps.begin(sample_record([32]), fresh=False).record.id
    known = store.sweeps.add_points(sweep_id, sample_point(32, 1))
    with pytest.raises(ConflictError):
        store.sweeps.add_points(sweep_id, sample_point(32, 0), sample_point(32, 1))
    assert store.sweeps.get(sweep_id).points == known


def test_point_that_another_process_has_stored_meanwhile_is_no_damage(store):
    """The story: the later of two equal sweeps was told to restore a copy of its database."""
    sweep_id = store.sweeps.begin(sample_record([32, 64]), fresh=False).record.id
    store.sweeps.add_points(sweep_id, sample_point(32))
    said = f"^sweep {sweep_id}: another process trains it too, and has stored batch 32: let that"
    with pytest.raises(ConflictError, match=said):
        store.sweeps.add_points(sweep_id, sample_point(32))
    store.sweeps.add_points(sweep_id, sample_point(64), sample_point(32, 1))


def test_losses_that_are_not_finite_come_back_as_they_were(store):
    point = sample_point(32)
    point = replace(point, epochs=tuple(replace(one, train_loss=nan) for one in point.epochs))
    sweep_id = store.sweeps.begin(sample_record([32]), fresh=False).record.id
    store.sweeps.add_points(sweep_id, point)
    (read,) = store.sweeps.get(sweep_id).points
    assert read.epochs[0].train_loss != read.epochs[0].train_loss


def test_sweep_that_is_not_there_is_said_so(store):
    for sweep_id in [0, -1, 1, 2**70]:
        with pytest.raises(NoSweepError, match=f"no sweep {sweep_id}: ddlplan sweep list"):
            store.sweeps.get(sweep_id)
