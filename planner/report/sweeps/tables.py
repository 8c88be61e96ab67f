"""Sweeps as a table, one of them with its points and what they show, and as CSV and JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from planner.plans.stored_plan import iso_utc
from planner.quantities import (
    format_interval,
    format_number,
    format_range,
    format_value,
    interval_cells,
    interval_json,
)
from planner.report.hardware import describe_hardware
from planner.report.plan_line import describe_plan
from planner.report.plans import GENERATED
from planner.report.table import (
    Column,
    Row,
    Terminal,
    render_csv,
    render_facts,
    render_line,
    render_table,
)
from planner.sweeps.findings import (
    PointFigures,
    all_figures,
    find_sentences,
    list_batches,
    percent,
)
from planner.sweeps.sweep_record import StoredSweep, SweepRecord
from planner.trials.result import Outcome
from probes import codec

_SWEEPS = (
    Column(key="id", title="ID", right=True),
    Column(key="use_case", title="USE CASE", may_cut=True, cuts_start=True),
    Column(key="points", title="POINTS", right=True),
    Column(key="epochs", title="EPOCHS", right=True),
    Column(key="data", title="DATA"),
    Column(key="batches", title="BATCHES", may_cut=True),
    Column(key="settings", title="DEVICES", may_cut=True),
    Column(key="node", title="HOST", may_cut=True, may_drop=True),
    Column(key="begun", title="BEGUN"),
)
_POINTS = (
    Column(key="batch", title="BATCH", right=True),
    Column(key="setting", title="DEVICES"),
    Column(key="epoch_s", title="S/EPOCH", right=True),
    Column(key="speedup", title="TIMES AS FAST", right=True),
    Column(key="accuracy", title="ACCURACY", right=True),
    Column(key="loss", title="LOSS", right=True),
    Column(key="reason", title="FAILED", is_remark=True),
)
_CSV_FIELDS = (
    *("batch", "devices", "plan_id", "outcome", "epoch_s", "epoch_s_low", "epoch_s_high", "turns"),
    *("speedup", "speedup_low", "speedup_high", "accuracy", "accuracy_low", "accuracy_high"),
    *("test_loss", "train_loss", "start_s", "elapsed_s", "peak_memory_bytes", "reason", "data"),
)
_TIMES = (
    "Times are means of turns, their intervals (95 %) hold for another run on this machine; times "
    "as fast are against the first devices, turn by turn; "
)
_ACCURACY = (
    "accuracy is on the test set after the last epoch, its interval that of {samples} samples; "
)
_LOSS = "loss is the mean over {samples} samples of the test set after the last epoch; "
_NO_TEST = "there is no test set, so that nothing shows what was learned; "
_SEED = "one seed shows nothing of other seeds."


def sweeps_table(records: Sequence[SweepRecord], terminal: Terminal) -> str:
    """Give sweeps as a table, a line each."""
    return render_table([_sweep_row(record) for record in records], _SWEEPS, terminal)


def sweep_text(sweep: StoredSweep, terminal: Terminal) -> str:
    """Give one sweep: what it is, its points, and what they show."""
    parts = [render_facts(sweep_facts(sweep), terminal)]
    if sweep.points:
        parts.append(render_table(point_rows(sweep), _POINTS, terminal))
        parts.append(render_line(interval_note(sweep), terminal))
    if sentences := find_sentences(sweep):
        parts.append("".join(render_line(sentence, terminal) for sentence in sentences))
    return "\n".join(parts)


def interval_note(sweep: StoredSweep) -> str:
    """Say what the intervals of a sweep are."""
    samples = sweep.record.test_samples
    if any(one.accuracy is not None for one in all_figures(sweep)):
        learned = _ACCURACY
    else:
        learned = _LOSS if samples else _NO_TEST
    made_up = " The samples are generated." if sweep.record.is_generated else ""
    return f"{_TIMES}{learned.format(samples=samples)}{_SEED}{made_up}"


def sweep_facts(sweep: StoredSweep) -> list[tuple[str, str]]:
    """Give a sweep as names and texts."""
    record, node = sweep.record, sweep.hardware
    facts = [
        ("sweep", str(record.id)),
        ("use case", record.use_case),
        ("data", GENERATED if record.is_generated else record.data or "the use case's own"),
        ("samples", f"{record.train_samples} for training, {record.test_samples} for the test"),
        ("seed", str(record.seed)),
        ("epochs", str(record.epochs)),
        ("begun", f"{record.created_at:%Y-%m-%d %H:%M:%S} UTC on {record.node}"),
        ("hardware", "no probe of it is stored" if node is None else describe_hardware(node)),
        ("software", ", ".join(f"{name} {value}" for name, value in record.software.items())),
        ("points", f"{len(sweep.points)} of {record.size}"),
    ]
    settings = record.settings
    return facts + [(one.label, _setting_text(describe_plan(one.plan))) for one in settings]


def point_rows(sweep: StoredSweep) -> list[Row]:
    """Give the points of a sweep as rows of a table."""
    return [_point_row(sweep, one) for one in all_figures(sweep)]


def sweep_csv(sweep: StoredSweep) -> str:
    """Give the points of a sweep as CSV."""
    return render_csv([_record(sweep, one) for one in all_figures(sweep)], _CSV_FIELDS)


def sweep_json(sweep: StoredSweep) -> dict[str, Any]:
    """Give a sweep with its points and findings as plain values for JSON."""
    return {
        **record_json(sweep.record),
        "points": [_point_json(sweep, one) for one in all_figures(sweep)],
        "findings": find_sentences(sweep),
    }


def record_json(record: SweepRecord) -> dict[str, Any]:
    """Give a sweep without its points as plain values for JSON."""
    values: dict[str, Any] = codec.to_builtins(record)
    return {**values, "created_at": iso_utc(record.created_at), "size": record.size}


def _sweep_row(record: SweepRecord) -> Row:
    return {
        "id": str(record.id),
        "use_case": record.use_case,
        "points": f"{record.num_points}/{record.size}",
        "epochs": str(record.epochs),
        "data": "generated" if record.is_generated else "",
        "batches": list_batches(record.batches, record.batches).partition(" ")[2],
        "settings": ", ".join(setting.label for setting in record.settings),
        "node": record.node,
        "begun": f"{record.created_at:%m-%d %H:%M}",
    }


def _point_row(sweep: StoredSweep, one: PointFigures) -> Row:
    point = one.point
    failed = point.outcome is not Outcome.OK
    return {
        "batch": str(point.batch),
        "setting": sweep.record.settings[point.setting].label,
        "epoch_s": _epoch_text(one),
        "speedup": format_interval(one.speedup),
        "accuracy": "" if one.accuracy is None else percent(one.accuracy),
        "loss": "" if one.loss is None else format_value(one.loss),
        "reason": f"{point.outcome.words}: {point.reason}" if failed else "",
    }


def _epoch_text(one: PointFigures) -> str:
    if one.epoch_s is None and one.rough_epoch_s is not None:
        return f"about {format_number(one.rough_epoch_s)}"
    return format_interval(one.epoch_s)


def _record(sweep: StoredSweep, one: PointFigures) -> Mapping[str, object]:
    point, epoch = one.point, one.point.last_epoch
    setting = sweep.record.settings[point.setting]
    return {
        "batch": point.batch,
        "devices": setting.label,
        "plan_id": setting.plan_id,
        "outcome": str(point.outcome),
        "epoch_s": one.rough_epoch_s,
        **interval_cells("epoch_s", one.epoch_s),
        "turns": None if point.measurement is None else len(point.measurement.samples_s),
        **interval_cells("speedup", one.speedup),
        **interval_cells("accuracy", one.accuracy),
        "test_loss": one.loss,
        "train_loss": None if epoch is None else epoch.train_loss,
        "start_s": point.start_s,
        "elapsed_s": point.elapsed_s,
        "peak_memory_bytes": point.peak_memory_bytes,
        "reason": point.reason,
        "data": "generated" if sweep.record.is_generated else sweep.record.data,
    }


def _point_json(sweep: StoredSweep, one: PointFigures) -> dict[str, Any]:
    point = one.point
    setting = sweep.record.settings[point.setting]
    return {
        "batch": point.batch,
        "devices": setting.label,
        "setting": point.setting,
        "plan_id": setting.plan_id,
        "outcome": str(point.outcome),
        "reason": point.reason,
        "epoch_s": interval_json(one.epoch_s),
        "rough_epoch_s": one.rough_epoch_s,
        "speedup": interval_json(one.speedup),
        "accuracy": interval_json(one.accuracy),
        "test_loss": one.loss,
        "epochs": codec.to_builtins(point.epochs, null_for_nan=True),
        "peak_memory_bytes": point.peak_memory_bytes,
        "start_s": point.start_s,
        "elapsed_s": point.elapsed_s,
        "created_at": iso_utc(point.created_at),
    }


def point_line(label: str, figures: PointFigures) -> str:
    """Say what came of a point, in one line."""
    point = figures.point
    head = f"batch {point.batch:>6}  {label}"
    if point.outcome is not Outcome.OK:
        return f"{head}  {point.outcome.words}: {point.reason}"
    parts = [head]
    if figures.epoch_s is not None:
        parts.append(f"{format_range(figures.epoch_s)} s an epoch")
    elif figures.rough_epoch_s is not None:
        parts.append(f"about {format_number(figures.rough_epoch_s)} s an epoch")
    if figures.accuracy is not None:
        parts.append(f"accuracy {percent(figures.accuracy)}")
    if figures.loss is not None:
        parts.append(f"loss {format_value(figures.loss)}")
    return "  ".join(parts)


def _setting_text(described: str) -> str:
    """Leave the batch out: each point has its own."""
    words = described.split(" ")
    if "batch" in words:
        at = words.index("batch")
        words = words[:at] + words[at + 2 :]
    return " ".join(words)
