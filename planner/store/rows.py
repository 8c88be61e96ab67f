"""Rows of the tables as frozen values, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime
from itertools import combinations
from typing import Any, TypeVar

from planner.cluster.links import MeasuredLinks
from planner.plans.stored_plan import StoredPlan
from planner.trials.result import TrialResult
from planner.tuning.study import StoredTrial, Study
from probes import codec
from probes.errors import InvalidDocumentError

T = TypeVar("T")

Row = Mapping[str, Any]


def find_document(values: Mapping[str, Any] | None, kind: type[T]) -> T | None:
    """Read a document; ``None`` where there is none, or one of another release's form."""
    try:
        return None if values is None else codec.convert(values, kind, source=kind.__name__)
    except InvalidDocumentError:
        return None


def record_columns(record: Any, *, null_for_nan: bool = False) -> dict[str, Any]:
    """Give a record, which is a dataclass, as columns without its number: the database gives that.

    Columns of times take times as they are, not the texts that stand for them in JSON.
    """
    columns: dict[str, Any] = codec.to_builtins(record, null_for_nan=null_for_nan)
    columns.pop("id", None)
    values = {each.name: getattr(record, each.name) for each in fields(record)}
    return columns | {name: value for name, value in values.items() if isinstance(value, datetime)}


def study_columns(study: Study) -> dict[str, Any]:
    """Give a study as columns of ``studies``, without those that the store adds."""
    return {"key": study.key, **codec.to_builtins(study)}


def trial_columns(result: TrialResult) -> dict[str, Any]:
    """Give a trial as columns of ``trials``, without those that the store adds."""
    columns: dict[str, Any] = codec.to_builtins(result)
    compile_s = columns.pop("compile_s")
    if columns["measurement"] is not None:
        columns["measurement"]["compile_s"] = compile_s
    return columns


def trial_from_row(row: Row) -> StoredTrial:
    """Read a row of ``trials``, perhaps with what its study says of it."""
    measurement = row["measurement"]
    # Trials of the first release compiled nothing and have no word of it.
    compile_s = measurement.get("compile_s") if isinstance(measurement, dict) else None
    known = {**row, "result": {**row, "compile_s": compile_s}}
    return codec.convert(known, StoredTrial, source="trial")


def plan_columns(stored: StoredPlan) -> dict[str, Any]:
    """Give a plan as columns of ``plans``, without its id."""
    columns = record_columns(stored)
    columns["throughput"] = columns.pop("throughput_samples_per_s")
    columns["step_time"] = None if stored.step_time is None else stored.step_time.to_json()
    return columns


def plan_from_row(row: Row) -> StoredPlan:
    """Read a row of ``plans``, perhaps one of `selections.select_brief_plans`."""
    steps = row.get("step_time")
    values = {
        **row,
        "throughput_samples_per_s": row["throughput"],
        "comparisons": row.get("comparisons") or (),
        "step_time": steps and {"step_time": steps, "points": steps["points"]},
    }
    return codec.convert(values, StoredPlan, source="plan")


def links_columns(measured: MeasuredLinks) -> dict[str, Any]:
    """Give measured links as columns of ``links``, without those that the store adds."""
    columns = record_columns(measured)
    measurement = {key: columns.pop(key) for key in ("links", "sums")}
    return columns | {"measurement": measurement}


def links_from_row(row: Row) -> MeasuredLinks:
    """Read a row of ``links``, also of an older release that stored only the busiest host's times.

    That host's times then count for each host.

    Raises:
        ValueError: It is not of every host, or not of every two.
    """
    hosts = len(row["hosts"])
    sums = []
    for one in row["measurement"]["sums"]:
        spent = {key: one.get(key, 0.0) for key in ("cpu_s", "interrupts_s")}
        by_host = {
            key: found if isinstance(found, list) else [found] * hosts
            for key, found in spent.items()
        }
        sums.append(one | by_host)
    values = {**row, "links": row["measurement"]["links"], "sums": sums}
    measured = codec.convert(values, MeasuredLinks, source="links")
    counts = {len(measured.fingerprints)}
    counts.update(len(times) for one in measured.sums for times in (one.cpu_s, one.interrupts_s))
    if counts != {hosts}:
        raise ValueError(f"links: {hosts} hosts, and fingerprints or times of another number")
    known = {frozenset((link.first, link.second)) for link in measured.links}
    for one, other in combinations(measured.hosts, 2):
        if frozenset((one, other)) not in known:
            raise ValueError(f"links: nothing is known between {one!a:.60} and {other!a:.60}")
    return measured
