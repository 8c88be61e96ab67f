"""What does a row mean? Frozen values to columns and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any

from launch.plan import Plan
from launch.shares import StepTime
from planner.links import MeasuredLinks
from planner.measured_steps import MeasuredSteps, StepPoint
from planner.result import TrialResult, json_object
from planner.stored_plan import Baseline, StoredPlan
from planner.study import StoredTrial, Study
from probes.timing import Interval

Row = Mapping[str, Any]


def study_columns(study: Study) -> dict[str, Any]:
    """Give a study as columns of ``studies``, without what the store adds."""
    return {
        "key": study.key,
        "use_case": study.use_case,
        "node": study.node,
        "fingerprint": study.fingerprint,
        "precision": study.precision,
        "software": dict(study.software),
        "data": study.data,
        "seed": study.seed,
    }


def trial_columns(result: TrialResult) -> dict[str, Any]:
    """Give a trial as columns of ``trials``, without what the store adds."""
    return result.to_json()


def trial_from_row(row: Row) -> StoredTrial:
    """Read a row of ``trials``."""
    return StoredTrial(
        id=row["id"],
        study_id=row["study_id"],
        number=row["number"],
        created_at=_time(row["created_at"]),
        result=TrialResult.from_json(row),
    )


def plan_columns(stored: StoredPlan) -> dict[str, Any]:
    """Give a plan as columns of ``plans``, without its id."""
    return {
        "study_id": stored.study_id,
        "created_at": stored.created_at,
        "use_case": stored.use_case,
        "node": stored.node,
        "fingerprint": stored.fingerprint,
        "plan": stored.plan.to_json(),
        "throughput": asdict(stored.throughput_samples_per_s),
        "speedup": None if stored.speedup is None else asdict(stored.speedup),
        "baseline": None if stored.baseline is None else asdict(stored.baseline),
        "peak_memory_bytes": stored.peak_memory_bytes,
        "software": dict(stored.software),
        "step_time": None if stored.step_time is None else stored.step_time.to_json(),
        "gradient_bytes": stored.gradient_bytes,
        "begins_early": stored.begins_early,
    }


def plan_from_row(row: Row) -> StoredPlan:
    """Read a row of ``plans``."""
    speedup, baseline = row["speedup"], row["baseline"]
    return StoredPlan(
        id=row["id"],
        study_id=row["study_id"],
        created_at=_time(row["created_at"]),
        use_case=row["use_case"],
        node=row["node"],
        fingerprint=row["fingerprint"],
        plan=Plan.from_json(json_object(row["plan"])),
        throughput_samples_per_s=Interval(**json_object(row["throughput"])),
        speedup=None if speedup is None else Interval(**json_object(speedup)),
        baseline=None if baseline is None else Baseline(**json_object(baseline)),
        peak_memory_bytes=row["peak_memory_bytes"],
        software=json_object(row["software"]),
        step_time=None if row["step_time"] is None else _steps(json_object(row["step_time"])),
        gradient_bytes=row["gradient_bytes"],
        begins_early=row["begins_early"],
    )


def links_columns(measured: MeasuredLinks) -> dict[str, Any]:
    """Give measured links as columns of ``links``, without what the store adds."""
    return {
        "measured_at": measured.measured_at,
        "hosts": list(measured.hosts),
        "fingerprints": list(measured.fingerprints),
        "measurement": measured.to_json(),
    }


def links_from_row(row: Row) -> MeasuredLinks:
    """Read a row of ``links``."""
    return MeasuredLinks.from_json(
        json_object(row["measurement"]),
        hosts=tuple(row["hosts"]),
        fingerprints=tuple(row["fingerprints"]),
        measured_at=_time(row["measured_at"]),
    )


def _steps(values: Row) -> MeasuredSteps:
    points = tuple(StepPoint(**json_object(point)) for point in values["points"])
    return MeasuredSteps(step_time=StepTime.from_json(values), points=points)


def _time(value: object) -> datetime:
    if not isinstance(value, datetime):
        raise TypeError(f"time={value!r}: expected a time")
    return value
