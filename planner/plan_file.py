"""Does a file hold a plan? What ``plans export`` wrote, checked key by key."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any, NoReturn

from launch.errors import InvalidPlanError, UnknownStrategyError
from launch.plan import Plan
from launch.strategies import check_plan
from planner.errors import PlanFileError
from planner.json_object import JsonObject
from planner.measured_steps import MeasuredSteps, StepPoint, steps_from_points
from planner.stored_plan import Baseline, StoredPlan
from probes.timing import Interval

MAX_FILE_BYTES = 2**20


def read_plan_file(path: str | Path) -> StoredPlan:
    """Read a plan from a file: the plan alone, or the document that ``--json`` prints.

    Raises:
        PlanFileError: The file cannot be read, or holds no plan.
    """
    name = f"plan file {path}"
    document = _parse(name, _read(name, Path(path)))
    if isinstance(document, dict) and "schema_version" in document:
        if document["schema_version"] != 1:
            found = document["schema_version"]
            raise PlanFileError(f"{name}: schema_version={found!r}: expected 1, update ddlplan")
        document = document.get("data")
        if isinstance(document, dict) and isinstance(document.get("plan"), dict):
            document = document["plan"]
    return plan_from_json(document, source=name)


def plan_from_json(values: object, *, source: str = "plan") -> StoredPlan:
    """Read a plan back from `StoredPlan.to_json`. The id is left out: the store gives its own.

    Raises:
        PlanFileError: A key is missing, or a value is not what it should be.
    """
    top = JsonObject(values, source)
    throughput = top.nested("throughput_samples_per_s")
    speedup = top.nested_or_none("speedup")
    baseline = top.nested_or_none("baseline")
    samples = throughput.whole("samples")
    return StoredPlan(
        use_case=top.text("use_case"),
        node=top.text("node"),
        fingerprint=top.text("fingerprint"),
        plan=_plan(top),
        throughput_samples_per_s=_interval(throughput, samples),
        speedup=None if speedup is None else _interval(speedup, samples),
        baseline=None if baseline is None else _baseline(baseline),
        peak_memory_bytes=top.whole("peak_memory_bytes") if top.has("peak_memory_bytes") else None,
        step_time=_steps(top.nested_or_none("step_time")),
        gradient_bytes=top.whole("gradient_bytes") if top.has("gradient_bytes") else None,
        begins_early=top.switch("begins_early") if top.has("begins_early") else None,
        created_at=top.time("created_at"),
        software=top.texts("software"),
    )


def _plan(top: JsonObject) -> Plan:
    """Read the plan itself; keys that later releases added may be absent."""
    values: dict[str, Any] = {"strategy": top.text("strategy")}
    values["node_batch"] = top.whole("node_batch")
    for key in ("processes", "threads_per_process", "replicas", "micro_batches"):
        if top.has(key):
            values[key] = top.whole(key)
    values.setdefault("replicas", values.get("processes", 1))
    if top.has("loader_workers"):
        values["loader_workers"] = top.whole("loader_workers", at_least=0)
    for key in ("precision", "memory_format", "allocator", "input"):
        if top.has(key):
            values[key] = top.text(key)
    for key in ("fused_optimizer", "compile", "cuda_graph"):
        if top.has(key):
            values[key] = top.switch(key)
    if top.has("devices"):
        values["devices"] = top.devices("devices")
    if top.has("options"):
        values["options"] = top.settings("options")
    try:
        plan = Plan(**values)
        check_plan(plan)
    except (InvalidPlanError, UnknownStrategyError) as error:
        raise PlanFileError(f"{top.name}: {error}") from error
    return plan


def _interval(values: JsonObject, count: int) -> Interval:
    low, median, high = (values.positive(key) for key in ("ci_low", "median", "ci_high"))
    if not low <= median <= high:
        raise values.error("median", f"a number from ci_low={low:g} to ci_high={high:g}")
    return Interval(median=median, low=low, high=high, count=count)


def _baseline(values: JsonObject) -> Baseline:
    return Baseline(
        strategy=values.text("strategy"),
        node_batch=values.whole("node_batch"),
        throughput_samples_per_s=values.positive("throughput_samples_per_s"),
    )


def _steps(values: JsonObject | None) -> MeasuredSteps | None:
    """Read measured steps; the line is laid anew, so that it fits its points."""
    if values is None:
        return None
    points = [_step(point) for point in values.objects("points")]
    if not points:
        raise values.error("points", "at least one measured batch")
    return steps_from_points(points)


def _step(point: JsonObject) -> StepPoint:
    peak = "peak_memory_bytes"
    return StepPoint(
        node_batch=point.whole("node_batch"),
        step_s=point.positive("step_s"),
        peak_memory_bytes=point.whole(peak) if point.has(peak) else None,
    )


def _read(name: str, path: Path) -> bytes:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise PlanFileError(f"{name}: it is no regular file: name one that plans export wrote")
        with path.open("rb") as stream:
            content = stream.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = getattr(error, "strerror", None) or str(error)
        raise PlanFileError(f"{name!r}: {reason.lower()}") from error
    if len(content) > MAX_FILE_BYTES:
        raise PlanFileError(f"{name}: expected at most {MAX_FILE_BYTES} bytes")
    return content


def _parse(name: str, content: bytes) -> object:
    def refuse_constant(constant: str) -> NoReturn:
        raise ValueError(f"{constant} is no JSON number")

    try:
        return json.loads(content.decode("utf-8-sig"), parse_constant=refuse_constant)
    except (ValueError, RecursionError) as error:
        raise PlanFileError(f"{name}: it is no JSON ({error}): name one of plans export") from error
