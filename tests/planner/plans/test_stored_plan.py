"""Stored plans: which of several is the one to use."""

from __future__ import annotations

from dataclasses import replace

from sample_plan import FOUND

from planner.plans.stored_plan import find_best
from probes.timing import Interval


def version(number: int, digest: str | None, rate: float):
    interval = Interval(median=rate, low=0.9 * rate, high=1.1 * rate, count=9)
    return replace(
        FOUND,
        id=number,
        study_id=number,
        use_case="script:python train.py",
        use_case_digest=digest,
        throughput_samples_per_s=interval,
    )


def chosen(*plans) -> int:
    best = find_best(plans, fingerprint=FOUND.fingerprint, software=FOUND.software)
    assert best is not None
    return best.id


def test_plan_of_a_script_is_one_of_the_version_that_was_tuned_last():
    """The story: after an edit and another tune, launch took the faster plan of before."""
    before, after = version(1, "sha256:1", 200.0), version(2, "sha256:2", 100.0)
    assert chosen(before, after) == 2
    assert chosen(before, version(2, "sha256:1", 100.0)) == 1
    assert chosen(version(1, None, 200.0), after) == 1
