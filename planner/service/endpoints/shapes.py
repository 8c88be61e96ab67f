"""Shapes: JSON Schemas of the documents that the API gives.

What is a frozen value of ours is described by its own fields. The rest has the form that the
commands print, which is put together here.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, get_args

from launch.plan import Plan
from launch.system.log_part import LogPart
from planner.plans.measured_steps import StepPoint
from planner.plans.stored_plan import Baseline
from planner.records.event_record import EventRecord
from planner.records.job_record import JobRecord
from planner.records.machine_record import MachineRecord
from planner.records.study_record import StudyRecord
from planner.records.training_record import TrainingRecord
from planner.records.usage_record import HostUsage
from planner.report.output import SCHEMA_VERSION
from planner.service.endpoints.job_options import JobOptions
from planner.sweeps.sweep_record import SweepRecord
from planner.worth.batch_advice import BatchAdvice
from planner.worth.step_parts import StepPart
from probes import codec

Shape = Mapping[str, Any]

_TEMPLATE = "#/components/schemas/{name}"
_TYPES = (
    Baseline,
    BatchAdvice,
    EventRecord,
    HostUsage,
    JobRecord,
    LogPart,
    MachineRecord,
    Plan,
    StepPart,
    StepPoint,
    StudyRecord,
    SweepRecord,
    TrainingRecord,
)
_REQUESTS = get_args(JobOptions)

TEXT: Shape = {"type": "string"}
WHOLE: Shape = {"type": "integer"}
NUMBER: Shape = {"type": "number"}
TRUTH: Shape = {"type": "boolean"}
ANYTHING: Shape = {}
TIME: Shape = {"type": "string", "format": "date-time"}


def of(kind: type) -> Shape:
    """Refer to the shape of a type of ours, or of what a request says."""
    assert kind in (*_TYPES, *_REQUESTS), "else it is not described"
    return {"$ref": _TEMPLATE.format(name=kind.__name__)}


def fields(**named: Shape) -> Shape:
    """Describe an object, all of whose keys are there."""
    return {"type": "object", "properties": named, "required": list(named)}


def both(*parts: Shape) -> Shape:
    """Describe an object that has the keys of several."""
    return {"allOf": list(parts)}


def either(*shapes: Shape) -> Shape:
    """Describe what has one of several shapes."""
    return {"anyOf": list(shapes)}


def many(item: Shape) -> Shape:
    """Describe a list."""
    return {"type": "array", "items": item}


def maybe(shape: Shape) -> Shape:
    """Describe what may be ``null``."""
    return either(shape, {"type": "null"})


def by_name(value: Shape) -> Shape:
    """Describe an object with any keys."""
    return {"type": "object", "additionalProperties": value}


INTERVAL = fields(median=NUMBER, ci_low=NUMBER, ci_high=NUMBER)
RATE = both(INTERVAL, fields(samples=WHOLE))
PLAN = both(
    of(Plan),
    fields(
        id=maybe(WHOLE),
        use_case=TEXT,
        use_case_digest=maybe(TEXT),
        node=TEXT,
        fingerprint=TEXT,
        throughput_samples_per_s=RATE,
        speedup=maybe(INTERVAL),
        baseline=maybe(of(Baseline)),
        comparisons=many(
            fields(name=TEXT, plan=of(Plan), throughput_samples_per_s=NUMBER, speedup=INTERVAL)
        ),
        peak_memory_bytes=maybe(WHOLE),
        peak_device_memory_bytes=maybe(WHOLE),
        step_time=maybe(fields(fixed_s=NUMBER, per_sample_s=NUMBER, points=many(of(StepPoint)))),
        gradient_bytes=maybe(WHOLE),
        begins_early=maybe(TRUTH),
        is_generated=maybe(TRUTH),
        created_at=TIME,
        software=by_name(TEXT),
        stale=TRUTH,
    ),
)
COMPARISON = fields(
    first=PLAN,
    second=PLAN,
    differences=many(TEXT),
    throughput_ratio=NUMBER,
    intervals_overlap=TRUTH,
    verdict=TEXT,
)
WORTH = fields(
    step_time_s=NUMBER,
    step_parts=many(of(StepPart)),
    runner_up=maybe(fields(plan=of(Plan), lead=INTERVAL, certainty=NUMBER)),
    variations=many(
        fields(setting=TEXT, value=TEXT, other=TEXT, speed=maybe(INTERVAL), basis=TEXT)
    ),
    baselines=many(
        fields(
            name=TEXT,
            plan=of(Plan),
            throughput_samples_per_s=INTERVAL,
            speedup=INTERVAL,
            epochs_until_paid=maybe(NUMBER),
            epochs_until_paid_ci_low=maybe(NUMBER),
            epochs_until_paid_ci_high=maybe(NUMBER),
            training_until_paid_s=maybe(NUMBER),
            training_until_paid_s_ci_low=maybe(NUMBER),
            training_until_paid_s_ci_high=maybe(NUMBER),
        )
    ),
    batches=maybe(of(BatchAdvice)),
    batches_unknown=maybe(TEXT),
    tuning_s=NUMBER,
    trials=WHOLE,
)
TRIAL = both(
    of(Plan),
    fields(
        id=WHOLE,
        study_id=WHOLE,
        use_case=maybe(TEXT),
        is_generated=maybe(TRUTH),
        number=WHOLE,
        created_at=TIME,
        role=TEXT,
        outcome=TEXT,
        reason=maybe(TEXT),
        elapsed_s=NUMBER,
        peak_memory_bytes=maybe(WHOLE),
        peak_device_memory_bytes=maybe(WHOLE),
        parameters=by_name(ANYTHING),
        throughput_samples_per_s=maybe(RATE),
        compile_s=maybe(NUMBER),
        warmup_s=many(NUMBER),
        samples_s=many(NUMBER),
        rounds=many(ANYTHING),
        drift=maybe(NUMBER),
        input_share=maybe(NUMBER),
        log_tail=maybe(TEXT),
    ),
)
SWEEP = both(of(SweepRecord), fields(size=WHOLE))
SWEEP_POINT = fields(
    batch=WHOLE,
    devices=TEXT,
    setting=WHOLE,
    plan_id=maybe(WHOLE),
    outcome=TEXT,
    reason=maybe(TEXT),
    epoch_s=maybe(INTERVAL),
    rough_epoch_s=maybe(NUMBER),
    speedup=maybe(INTERVAL),
    accuracy=maybe(INTERVAL),
    test_loss=maybe(NUMBER),
    epochs=many(by_name(ANYTHING)),
    peak_memory_bytes=maybe(WHOLE),
    start_s=maybe(NUMBER),
    elapsed_s=NUMBER,
    created_at=TIME,
)
NETWORK = fields(
    hosts=many(TEXT),
    measured_at=TIME,
    links=many(fields(first=TEXT, second=TEXT, latency_s=NUMBER, bytes_per_s=NUMBER)),
    all_reduces=many(by_name(ANYTHING)),
)
PREDICTION = fields(
    hosts=many(TEXT),
    node_batches=many(WHOLE),
    global_batch=WHOLE,
    computing_s=many(NUMBER),
    network_s=NUMBER,
    step_s=NUMBER,
    throughput_samples_per_s=NUMBER,
)
CHOICE = fields(
    chosen=PREDICTION,
    best=PREDICTION,
    subsets=many(PREDICTION),
    nodes=many(fields(host=TEXT, is_used=TRUTH, gain=maybe(NUMBER))),
    larger_batch=maybe(PREDICTION),
    knows_network=TRUTH,
)
TOGETHER = fields(
    network=NETWORK,
    use_case=maybe(TEXT),
    plans=many(fields(host=TEXT, plan_id=maybe(WHOLE))),
    choice=maybe(CHOICE),
    reason=maybe(TEXT),
)
SUMMARY = fields(name=TEXT, summary=TEXT)
NOTHING: Shape = {"type": "object", "additionalProperties": False}
REMOVED = fields(id=WHOLE)
_HEAD: dict[str, Shape] = {
    "schema_version": {"const": SCHEMA_VERSION},
    "command": TEXT,
    "warnings": many(TEXT),
}
ERROR = fields(**_HEAD, error=fields(code=WHOLE, kind=TEXT, message=TEXT))


def document(data: Shape, *, is_list: bool) -> Shape:
    """Describe an answer with its data."""
    more: dict[str, Shape] = {"next": maybe(TEXT)} if is_list else {}
    return fields(**_HEAD, data=data, **more)


@cache
def components() -> Mapping[str, Shape]:
    """Give the shapes that others refer to, by their names."""
    found = codec.json_schemas(_TYPES, _TEMPLATE)
    found |= codec.json_schemas(_REQUESTS, _TEMPLATE, for_reading=True)
    for name in ("EpochDone", "TrainingRecord"):
        for shape in found[name]["properties"].values():  # a loss may be NaN, which JSON has not
            _allow_null(shape)
    workers = found["Plan"]["properties"]["loader_workers"]
    workers["type"] = ["integer", "null"]  # those of a script may be its own, and not known
    return found


def _allow_null(shape: dict[str, Any]) -> None:
    if shape.get("type") == "number":
        shape["type"] = ["number", "null"]
    for inner in (shape.get("items"), shape.get("additionalProperties")):
        if isinstance(inner, dict):
            _allow_null(inner)
