"""Findings of a sweep: only what intervals show is said."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from sweep_samples import failed_point, sample_point, sample_sweep
from worth_cases import BUSY, beside_others

from planner.sweeps.findings import (
    find_fall,
    find_sentences,
    is_lower,
    list_batches,
    point_figures,
    share_interval,
)
from planner.sweeps.sweep_record import StoredSweep


def said(sweep: StoredSweep, *words: str) -> list[str]:
    return [text for text in find_sentences(sweep) if all(word in text for word in words)]


def test_second_worker_pays_where_it_is_shown_to_be_faster_and_not_where_it_gains_nothing():
    sweep = sample_sweep({32: (10, 6), 64: (10, 10), 128: (10, 14)})
    assert said(sweep, "2 workers stop paying above batch 32: ", "as 1 worker at batch 64.")


def test_where_more_workers_stop_paying_is_said_with_the_interval():
    sweep = sample_sweep({32: (10, 6), 64: (9, 6), 128: (9, 10), 256: (9, 12)})
    (found,) = said(sweep, "2 workers stop paying above batch 64: ")
    assert re.search(
        r": 0\.\d\d times \(0\.\d\d to 0\.\d\d\) as fast as 1 worker at batch 128", found
    )
    assert said(sweep, "shorter than with 1 worker at batches 32 to 64: most at batch 32, 1.6")


def test_where_more_workers_begin_to_pay_is_said():
    sweep = sample_sweep({32: (10, 14), 64: (9, 7), 128: (9, 5)})
    assert said(sweep, "2 workers do not pay below batch 64: 0.7")
    assert not said(sweep, "stop paying")


def test_nothing_is_said_of_workers_that_gain_little_where_turns_vary_a_lot():
    noisy = [sample_point(32, n, epoch_s=t, noise=0.4, turns=8) for n, t in enumerate((10, 9.7))]
    sweep = replace(sample_sweep({32: (10, 9)}), points=noisy)
    assert not said(sweep, "2 workers")


def test_settings_that_took_no_turns_with_each_other_are_not_compared():
    sweep = sample_sweep({32: (10, 5)})
    first, second = sweep.points
    apart = replace(sweep, points=[first, replace(second, side_by_side="later")])
    assert point_figures(apart, apart.points[1]).speedup is None


def test_few_turns_give_a_time_without_an_interval():
    sweep = replace(sample_sweep({32: (10,)}), points=[sample_point(32, epoch_s=10, turns=3)])
    figures = point_figures(sweep, sweep.points[0])
    assert figures.epoch_s is None
    assert figures.rough_epoch_s == pytest.approx(10, rel=0.1)


def test_time_of_an_epoch_has_its_truth_within_its_interval():
    sweep = sample_sweep({32: (10, 5), 128: (7, 4)})
    for point, truth in zip(sweep.points, (10, 5, 7, 4), strict=True):
        interval = point_figures(sweep, point).epoch_s
        assert interval is not None
        assert interval.low < truth < interval.high
        slowed = replace(point, measurement=beside_others(point.measurement))
        wide = point_figures(sweep, slowed).epoch_s
        assert wide.low == pytest.approx(interval.low / BUSY.most_slowed)
        assert wide.high == interval.high


def test_smallest_batch_that_no_other_beats_is_named():
    sweep = sample_sweep({32: (40, 30), 64: (20, 15), 128: (10, 8), 256: (10, 8), 512: (30, 25)})
    (found,) = said(sweep, "With 1 worker, no batch is shown to be faster than batch 128")
    assert "against 40" in found or "against 39" in found or "against 41" in found
    assert "from batch 512 on epochs are longer again" in found


def test_fall_of_accuracy_is_said_with_the_learning_rate():
    sweep = sample_sweep(
        {32: (9, 9), 64: (9, 9), 128: (9, 9), 256: (9, 9)}, {64: 0.979, 128: 0.95, 256: 0.8}
    )
    (found,) = said(sweep, "ccuracy")
    assert "falls from batch 128 on at this learning rate of 0.01 and with seed 0: " in found
    assert (
        "after 2 epochs 95.0 % (94.6 to 95.4), against 98.0 % (97.7 to 98.3) at batch 32" in found
    )


def test_figures_of_a_fall_are_those_of_each_setting():
    sweep = sample_sweep({32: (9, 9), 64: (9, 9)}, {64: 0.95})
    points = [*sweep.points[:3], sample_point(64, 1, accuracy=0.9)]
    (found,) = said(replace(sweep, points=points), "ccuracy")
    assert "95.0 % (94.6 to 95.4), against 98.0 % (97.7 to 98.3) at batch 32 with 1 worker" in found
    assert "90.0 % (89.4 to 90.6), against 98.0 % (97.7 to 98.3) at batch 32 with 2 work" in found


def test_learning_rate_that_a_schedule_has_changed_is_not_named():
    sweep = sample_sweep({32: (9, 9), 64: (9, 9)}, {64: 0.95})

    def scheduled(point):
        first, last = point.epochs
        return replace(point, epochs=(replace(first, learning_rates=(0.1,)), last))

    (found,) = said(replace(sweep, points=[scheduled(one) for one in sweep.points]), "ccuracy")
    assert "at this learning rate and with seed 0" in found


def test_more_batches_make_chance_likelier_and_a_fall_harder_to_show():
    shares = {32: share_interval(0.98, 10_000), 512: share_interval(0.9755, 10_000)}
    assert find_fall(shares) == (512, 32)
    between = {batch: share_interval(0.978, 10_000) for batch in (48, 64, 96, 128, 192, 256, 384)}
    assert find_fall({**shares, **between}) is None


def test_without_a_shown_fall_that_is_what_is_said():
    sweep = sample_sweep({32: (9, 9), 64: (9, 9)}, {32: 0.98, 64: 0.979})
    assert said(sweep, "No fall of accuracy is shown up to batch 64")


def test_no_fall_is_said_only_up_to_the_largest_batch_of_each_setting():
    sweep = sample_sweep({32: (9, 9), 64: (9, 9), 128: (9, 9)})
    points = [*sweep.points[:5], failed_point(128, 1)]
    found = said(replace(sweep, points=points), "no fall of accuracy")
    assert found == [
        "With 1 worker, no fall of accuracy is shown up to batch 128.",
        "With 2 workers, no fall of accuracy is shown up to batch 64.",
    ]


def test_batch_in_the_middle_that_is_worse_is_no_fall():
    shares = {32: share_interval(0.98, 10_000), 64: share_interval(0.9, 10_000)}
    assert find_fall({**shares, 128: share_interval(0.98, 10_000)}) is None
    assert find_fall(shares) == (64, 32)


def test_share_is_lower_only_where_its_interval_shows_it():
    assert is_lower(share_interval(0.95, 10_000), share_interval(0.98, 10_000))
    assert not is_lower(share_interval(0.95, 100), share_interval(0.98, 100))


def test_interval_of_a_share_stays_between_none_and_all():
    for share in (0.0, 1.0):
        interval = share_interval(share, 50)
        assert 0 <= interval.low <= interval.median <= interval.high <= 1
        assert interval.high - interval.low > 0.01


def test_failed_points_are_said_with_their_reason():
    sweep = sample_sweep({32: (10, 6)})
    broken = replace(sweep, points=[sweep.points[0], failed_point(32, 1)])
    assert said(broken, "Batch 32 with 2 workers failed, nan loss: loss=inf at step 3.")


def test_batches_are_named_as_ranges():
    every = (32, 64, 128, 256, 512)
    assert list_batches([32, 64, 128, 512], every) == "batches 32 to 128, 512"
    assert list_batches([64], every) == "batch 64"
