"""Plan file: a plan as ``plans export`` writes it, checked key by key."""

from __future__ import annotations

import stat
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import UTC
from pathlib import Path
from typing import Any

from launch.errors import InvalidPlanError, UnknownStrategyError
from launch.plan import Plan, Setting
from launch.strategies import check_plan
from planner.errors import PlanFileError, reason_of
from planner.plans.measured_steps import StepPoint, steps_from_points
from planner.plans.objective import Objective
from planner.plans.stored_plan import Baseline, ComparedPlan, StoredPlan
from planner.scripts.naming import STRATEGY, is_script
from planner.scripts.plan_check import check_command, check_script_plan
from probes import codec
from probes.codec import Count, Moment, Positive
from probes.errors import InvalidDocumentError
from probes.timing import Interval

MAX_FILE_BYTES = 2**20
_MAX_TEXT = 4096
_MAX_WHOLE = 2**53
"""Beyond it, other JSON readers round."""

_MIN_NUMBER, _MAX_NUMBER = 1e-30, 1e30
"""Between them, squares and quotients are finite numbers too."""

_MAX_ITEMS = 256
"""Of a list or an object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _IntervalDocument:
    median: Positive
    ci_low: Positive
    ci_high: Positive

    def __post_init__(self) -> None:
        if not self.ci_low <= self.median <= self.ci_high:
            raise ValueError(
                f"median={self.median:g}: expected a number from ci_low={self.ci_low:g} to "
                f"ci_high={self.ci_high:g}"
            )

    def to_interval(self, count: int) -> Interval:
        return Interval(median=self.median, low=self.ci_low, high=self.ci_high, count=count)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ThroughputDocument(_IntervalDocument):
    samples: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class _StepsDocument:
    points: tuple[StepPoint, ...]

    def __post_init__(self) -> None:
        if not self.points:
            raise ValueError("points=[]: expected at least one measured batch")


@dataclass(frozen=True, slots=True, kw_only=True)
class _ComparisonDocument:
    name: str
    plan: Mapping[str, Setting | tuple[str, ...] | Mapping[str, Setting] | None]
    throughput_samples_per_s: Positive
    speedup: _IntervalDocument


@dataclass(frozen=True, slots=True, kw_only=True)
class _EvidenceDocument:
    """What a plan file holds beside the fields of the plan."""

    use_case: str
    use_case_digest: str | None = None
    node: str
    fingerprint: str
    throughput_samples_per_s: _ThroughputDocument
    speedup: _IntervalDocument | None = None
    baseline: Baseline | None = None
    comparisons: tuple[_ComparisonDocument, ...] = ()
    peak_memory_bytes: Count | None = None
    peak_device_memory_bytes: Count | None = None
    step_time: _StepsDocument | None = None
    gradient_bytes: Count | None = None
    begins_early: bool | None = None
    objective: Objective | None = None
    is_generated: bool | None = None
    created_at: Moment
    software: Mapping[str, str]


def read_plan_file(path: str | Path) -> StoredPlan:
    """Read a plan from a file: the plan alone, or the document that ``--json`` prints.

    Raises:
        PlanFileError: The file cannot be read, or is no plan.
    """
    name = f"plan file {path}"
    content = _read(name, Path(path))
    try:
        document = codec.decode(content, dict[str, Any], source=name, allow_nan=False)
    except InvalidDocumentError as error:
        raise PlanFileError(f"{error}: name one that plans export wrote") from error
    return plan_from_document(document, source=name)


def plan_from_document(document: Mapping[str, Any], *, source: str = "plan") -> StoredPlan:
    """Read a plan from what a plan file holds.

    Raises:
        PlanFileError: It is no plan.
    """
    if "schema_version" not in document:
        return plan_from_json(document, source=source)
    if (version := document["schema_version"]) != 1:
        shown = codec.shorten(version)
        raise PlanFileError(f"{source}: schema_version={shown}: expected 1, update ddlplan")
    plan = document.get("data")
    if isinstance(plan, dict) and isinstance(plan.get("plan"), dict):
        plan = plan["plan"]
    return plan_from_json(plan, source=source)


def plan_from_json(values: object, *, source: str = "plan") -> StoredPlan:
    """Read a plan from `StoredPlan.to_json`. The id is left out: the store gives a new one.

    Raises:
        PlanFileError: A key is missing, or a value is not as expected.
    """
    try:
        found = codec.convert(values, _EvidenceDocument, source=source)
        plan = _read_plan(codec.convert(values, dict[str, Any], source=source), source)
        compared = [
            _read_plan(one.plan, f"{source}: comparisons[{number}].plan")
            for number, one in enumerate(found.comparisons)
        ]
        _check_shown(codec.to_builtins(plan) | codec.to_builtins(found), source)
        if plan.strategy == STRATEGY or is_script(found.use_case):
            check_command(found.use_case, plan)
            check_script_plan(plan)
        else:
            check_plan(plan)
        created_at = found.created_at.astimezone(UTC)
    except InvalidDocumentError as error:
        raise PlanFileError(str(error)) from error
    except (InvalidPlanError, UnknownStrategyError) as error:
        raise PlanFileError(f"{source}: {error}") from error
    except OverflowError as error:  # in the year 1, east of Greenwich
        raise PlanFileError(f"{source}: created_at: expected a time with its zone") from error
    samples = found.throughput_samples_per_s.samples
    steps = found.step_time  # its line is fitted anew, so that it matches the points
    stored = StoredPlan(
        use_case=found.use_case,
        use_case_digest=found.use_case_digest,
        node=found.node,
        fingerprint=found.fingerprint,
        plan=plan,
        throughput_samples_per_s=found.throughput_samples_per_s.to_interval(samples),
        speedup=None if found.speedup is None else found.speedup.to_interval(samples),
        baseline=found.baseline,
        comparisons=tuple(
            ComparedPlan(
                name=one.name,
                plan=other,
                throughput_samples_per_s=one.throughput_samples_per_s,
                speedup=one.speedup.to_interval(samples),
            )
            for one, other in zip(found.comparisons, compared, strict=True)
        ),
        peak_memory_bytes=found.peak_memory_bytes,
        peak_device_memory_bytes=found.peak_device_memory_bytes,
        step_time=None if steps is None else steps_from_points(steps.points),
        gradient_bytes=found.gradient_bytes,
        begins_early=found.begins_early,
        objective=found.objective,
        is_generated=found.is_generated,
        created_at=created_at,
        software=found.software,
    )
    assert isinstance(values, dict), "else it is refused before"
    known = stored.to_json(stale=False) | {"commands": values.get("commands")}
    for path, near in codec.find_unknown_keys(values, known):  # else a setting were the default
        remedy = f"did you mean {near}?" if near else "leave it out, or update ddlplan"
        raise PlanFileError(f"{source}: {path} is no key of a plan: {remedy}")
    return stored


def _read_plan(values: Mapping[str, Any], source: str) -> Plan:
    """Read the plan itself; keys that later releases added may be absent or null."""
    names = {field.name for field in fields(Plan)}
    own = {name: value for name, value in values.items() if name in names and value is not None}
    own.setdefault("replicas", own.get("processes", 1))
    return codec.convert(own, Plan, source=source)


def _check_shown(value: object, source: str, path: str = "") -> None:
    """Refuse texts whose control characters a terminal would obey, and numbers out of range."""
    expected = None
    match value:
        case dict() | list() if len(value) > _MAX_ITEMS:
            expected = f"at most {_MAX_ITEMS} of them"
        case dict():
            if not all(name.isprintable() for name in value):
                raise InvalidDocumentError(f"{source}: {path}*: expected printable keys")
            for name, item in value.items():
                _check_shown(item, source, f"{path}{name}.")
        case list():
            for index, item in enumerate(value):
                _check_shown(item, source, f"{path.removesuffix('.')}[{index}].")
        case str():
            if not (0 < len(value) <= _MAX_TEXT and value.isprintable()):
                expected = "a text of printable characters"
        case int() if abs(value) > _MAX_WHOLE:
            expected = f"a whole number of at most {_MAX_WHOLE}"
        case float() if value and not _MIN_NUMBER <= abs(value) <= _MAX_NUMBER:
            expected = f"0, or a number from {_MIN_NUMBER:g} to {_MAX_NUMBER:g}"
    if expected is not None:
        where, found = path.removesuffix("."), codec.shorten(value)
        raise InvalidDocumentError(f"{source}: {where}={found}: expected {expected}")


def _read(name: str, path: Path) -> bytes:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise PlanFileError(f"{name}: it is no regular file: name one that plans export wrote")
        with path.open("rb") as stream:
            content = stream.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise PlanFileError(f"{name!r}: {reason_of(error)}") from error
    if len(content) > MAX_FILE_BYTES:
        raise PlanFileError(f"{name}: expected at most {MAX_FILE_BYTES} bytes")
    return content
