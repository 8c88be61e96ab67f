"""Trainings as a table, and one by one with hosts, epochs and what they used."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import isfinite

from launch.noise_scale.estimate import NoiseScale
from launch.reports import EpochDone
from planner.plans.stored_plan import iso_utc, utc_now
from planner.quantities import format_bytes, format_count, format_duration, format_number
from planner.records.training_record import TrainingHost, TrainingRecord, TrainingStatus
from planner.records.usage_record import HostUsage, UsageCurve
from planner.report.plan_line import describe_plan
from planner.report.plans import GENERATED
from planner.report.table import Column, Row, Terminal, render_csv, render_facts, render_table
from planner.scripts.naming import describe_trained, is_script

_STYLES = {
    TrainingStatus.DONE: "green",
    TrainingStatus.FAILED: "red",
    TrainingStatus.INTERRUPTED: "red",
    TrainingStatus.RUNNING: "bold",
}

_RUNS = (
    Column(key="id", title="ID", right=True),
    Column(key="use_case", title="USE CASE", may_cut=True, cuts_start=True),
    Column(key="data", title="DATA"),
    Column(key="state", title="STATE", style=lambda state: _STYLES.get(TrainingStatus(state), "")),
    Column(key="epochs", title="EPOCHS", right=True),
    Column(key="loss", title="LOSS", right=True),
    Column(key="validation", title="VALIDATION", right=True, may_drop=True),
    Column(key="rate", title="SAMPLES/S", right=True),
    Column(key="hosts", title="HOSTS", may_cut=True),
    Column(key="started", title="STARTED"),
    Column(key="time", title="TIME", right=True, may_drop=True),
    Column(key="error", title="ERROR", is_remark=True),
)
_HOSTS = (
    Column(key="host", title="HOST", may_cut=True),
    Column(key="plan", title="PLAN", right=True),
    Column(key="settings", title="SETTINGS", moves_below=True),
    Column(key="alone", title="SAMPLES/S ALONE", right=True),
)
_EPOCHS = (
    Column(key="epoch", title="EPOCH", right=True),
    Column(key="loss", title="LOSS", right=True),
    Column(key="validation", title="VALIDATION", right=True),
    Column(key="metrics", title="METRICS", may_cut=True),
    Column(key="noise", title="NOISE SCALE", right=True, may_drop=True),
    Column(key="rate", title="SAMPLES/S", right=True),
    Column(key="time", title="TIME", right=True),
)
_USE = (
    Column(key="host", title="HOST", may_cut=True),
    Column(key="cores", title="CORES", right=True),
    Column(key="memory", title="MEMORY", right=True),
    Column(key="threads", title="THREADS", right=True, may_drop=True),
    Column(key="input", title="INPUT WAIT", right=True),
    Column(key="sync", title="SYNC WAIT", right=True),
    Column(key="disk", title="I/O WAIT", right=True),
    Column(key="received", title="IN/S", right=True),
    Column(key="sent", title="OUT/S", right=True),
    Column(key="gpu", title="GPU", right=True),
    Column(key="power", title="POWER", right=True, may_drop=True),
)
_RUN_FIELDS = (
    *("id", "use_case", "data", "is_generated", "seed", "state", "epochs", "epochs_done", "steps"),
    *("train_loss", "validation_loss", "throughput_samples_per_s", "expected_samples_per_s"),
    *("hosts", "plans", "strategies", "started_at", "ended_at", "run_directory", "weights"),
    "error",
)
_MOST_EPOCHS = 20
"""The last ones; the JSON has all."""


def runs_table(records: Sequence[TrainingRecord], terminal: Terminal) -> str:
    """Give trainings as a table, a line each, and the errors of those that failed."""
    return render_table([_run_row(record) for record in records], _RUNS, terminal)


def runs_csv(records: Sequence[TrainingRecord]) -> str:
    """Give trainings as CSV, a line each, with their last epoch that has trained."""
    return render_csv([_run_record(record) for record in records], _RUN_FIELDS)


def run_text(record: TrainingRecord, usage: Mapping[str, HostUsage], terminal: Terminal) -> str:
    """Give one training with its hosts, its epochs and what it used on average."""
    parts = [
        render_facts(run_facts(record), terminal),
        render_table([_host_row(host) for host in record.hosts], _HOSTS, terminal),
    ]
    if record.epochs_done and not is_script(record.use_case):
        rows = [_epoch_row(epoch) for epoch in record.epochs_done[-_MOST_EPOCHS:]]
        parts.append(render_table(rows, _EPOCHS, terminal))
    if used := [_use_row(host, use) for host, use in usage.items() if use.time_s]:
        parts.append(render_table(used, _USE, terminal))
    return "\n".join(parts)


def mark_title(title: str, *records: TrainingRecord) -> str:
    """Say in a title which of the trainings had made-up data; nothing where none had."""
    made_up = [record for record in records if record.is_generated]
    if not made_up:
        return title
    which = "" if len(made_up) == len(records) else f" in training {made_up[0].id}"
    return f"{title}, generated data{which}"


def run_facts(record: TrainingRecord) -> list[tuple[str, str]]:
    """Give a training as names and texts."""
    if is_script(record.use_case):
        return _script_facts(record)
    facts = [
        ("training", str(record.id)),
        ("use case", record.use_case),
        ("data", GENERATED if record.is_generated else record.data or "the use case's own"),
        ("seed", str(record.seed)),
        ("state", f"{record.state}: {record.error}" if record.error else str(record.state)),
        ("started", f"{record.started_at:%Y-%m-%d %H:%M:%S} UTC on {record.machine}"),
        ("time", _duration(record)),
        ("epochs", f"{_epochs(record)}, {format_count(record.steps, 'step')}"),
        ("speed", _speed(record)),
        *_noise(record),
        ("run directory", record.run_directory),
    ]
    files = (("weights", record.weights), ("checkpoint", record.checkpoint))
    return facts + [(name, path) for name, path in files if path is not None]


def _script_facts(record: TrainingRecord) -> list[tuple[str, str]]:
    """Give a run of a script: of its data, its loss and its epochs nothing is known."""
    run, expected = record.last_trained, record.expected_samples_per_s
    rate = None if run is None else run.throughput_samples_per_s
    measured = "not measured" if rate is None else f"{_number(rate)} samples/s"
    speed = f"{measured}, expected {_number(expected)}{' samples/s' if rate is None else ''}"
    return [
        ("training", str(record.id)),
        ("script", describe_trained(record.use_case)),
        ("state", f"{record.state}: {record.error}" if record.error else str(record.state)),
        ("started", f"{record.started_at:%Y-%m-%d %H:%M:%S} UTC on {record.machine}"),
        ("time", _duration(record)),
        ("steps", str(record.steps) if record.steps else "not counted"),
        ("speed", speed),
        ("folder", record.run_directory),
    ]


def noise_span(noise: NoiseScale) -> str:
    """Give the scale with its interval: ``312 (250 to 400)``; ``unclear`` where there is none."""
    if noise.scale is None or noise.low is None or noise.high is None:
        return "unclear"
    low, high = format_number(noise.low), format_number(noise.high)
    return f"{format_number(noise.scale)} ({low} to {high}){'?' if noise.caveat else ''}"


def describe_noise(noise: NoiseScale) -> str:
    """Describe a noise scale: its value, the number of its measurements, and its caveat."""
    basis = f"after {format_count(noise.measurements, 'measurement')}"
    if noise.scale is None:
        return f"unclear {basis}: the mean gradient is not clearly above its noise"
    span = noise_span(noise).rstrip("?")
    doubt = "" if noise.caveat is None else f"; not reliable with {noise.caveat}"
    return f"{span} samples {basis}{doubt}"


def _run_row(record: TrainingRecord) -> Row:
    last, of_script = record.last_trained, is_script(record.use_case)
    return {
        "id": str(record.id),
        "use_case": describe_trained(record.use_case),
        "data": "generated" if record.is_generated else "",
        "state": str(record.state),
        "epochs": "" if of_script else _epochs(record),
        "loss": _loss(None if last is None or of_script else last.train_loss),
        "validation": _loss(record.epochs_done[-1].validation_loss if record.epochs_done else None),
        "rate": _number(None if last is None else last.throughput_samples_per_s),
        "hosts": " ".join(host.host for host in record.hosts),
        "started": f"{record.started_at:%Y-%m-%d %H:%M}",
        "time": _duration(record),
        "error": record.error or "",
    }


def _run_record(record: TrainingRecord) -> dict[str, object]:
    last = record.last_trained
    return {
        "id": record.id,
        "use_case": record.use_case,
        "data": record.data,
        "is_generated": record.is_generated,
        "seed": record.seed,
        "state": str(record.state),
        "epochs": record.epochs,
        "epochs_done": len(record.epochs_done),
        "steps": record.steps,
        "train_loss": None if last is None or is_script(record.use_case) else last.train_loss,
        "validation_loss": None if last is None else last.validation_loss,
        "throughput_samples_per_s": None if last is None else last.throughput_samples_per_s,
        "expected_samples_per_s": record.expected_samples_per_s,
        "hosts": " ".join(host.host for host in record.hosts),
        "plans": " ".join("" if h.plan_id is None else str(h.plan_id) for h in record.hosts),
        "strategies": " ".join(host.plan.strategy for host in record.hosts),
        "started_at": iso_utc(record.started_at),
        "ended_at": None if record.ended_at is None else iso_utc(record.ended_at),
        "run_directory": record.run_directory,
        "weights": record.weights,
        "error": record.error,
    }


def _host_row(host: TrainingHost) -> Row:
    return {
        "host": host.host,
        "plan": "" if host.plan_id is None else str(host.plan_id),
        "settings": describe_plan(host.plan),
        "alone": _number(host.plan_samples_per_s),
    }


def _epoch_row(epoch: EpochDone) -> Row:
    return {
        "epoch": str(epoch.epoch),
        "loss": _loss(epoch.train_loss) if epoch.samples else "",
        "validation": _loss(epoch.validation_loss),
        "metrics": "  ".join(f"{name} {value:.3f}" for name, value in epoch.metrics.items()),
        "noise": "" if epoch.noise is None else noise_span(epoch.noise),
        "rate": _number(epoch.throughput_samples_per_s),
        "time": format_duration(epoch.train_time_s + epoch.validation_time_s),
    }


def _use_row(host: str, use: HostUsage) -> Row:
    utilisation = [_mean(use, gpu.utilisation) for gpu in use.gpus]
    power = [watts for gpu in use.gpus if (watts := _mean(use, gpu.power_w)) is not None]
    return {
        "host": host,
        "cores": _decimal(_mean(use, use.busy_cores)),
        "memory": _bytes(_maximum(use.memory_bytes)),
        "threads": _whole(_maximum(use.threads)),
        "input": _percent(_mean(use, use.input_wait)),
        "sync": _percent(_mean(use, use.sync_wait)),
        "disk": _decimal(_mean(use, use.io_wait_cores)),
        "received": _bytes(_mean(use, use.received_bytes_per_s)),
        "sent": _bytes(_mean(use, use.sent_bytes_per_s)),
        "gpu": " ".join(filter(None, map(_percent, utilisation))),
        "power": f"{sum(power):.0f} W" if power else "",
    }


def mean_use(usage: Mapping[str, HostUsage]) -> dict[str, str]:
    """Give what the hosts of a training used on average, added up, as names and texts.

    Waits are of the host that waited most. What is not on record of each host is left out.
    """
    used = [use for use in usage.values() if use.time_s]
    facts: dict[str, str] = {}
    for name, value_of, text in _SUMMED_USE:
        known = [value for use in used if (value := value_of(use)) is not None]
        if used and len(known) == len(used):
            facts[name] = text(sum(known))
    for name, quantity in _WAITS:
        waits = [v for use in used if (v := _mean(use, getattr(use, quantity))) is not None]
        if waits:
            facts[name] = _percent(max(waits))
    return facts


def _mean(use: HostUsage, curve: UsageCurve | None) -> float | None:
    """Give the mean of a curve over the time in which it is known."""
    if curve is None:
        return None
    known = curve.lasting(use.time_s)
    whole_s = sum(length_s for _, length_s in known)
    return sum(value * length_s for value, length_s in known) / whole_s if whole_s else None


def _maximum(curve: UsageCurve | None) -> float | None:
    return None if curve is None else max(v for v in curve.maximum if v is not None)


def _epochs(record: TrainingRecord) -> str:
    return f"{record.last_epoch}/{record.epochs}"


def _duration(record: TrainingRecord) -> str:
    ended = record.ended_at or record.heartbeat_at or utc_now()
    if record.state is TrainingStatus.RUNNING:
        ended = utc_now()
    return format_duration(max(0.0, (ended - record.started_at).total_seconds()))


def _speed(record: TrainingRecord) -> str:
    last, expected = record.last_trained, record.expected_samples_per_s
    if last is None:
        return "not known: no epoch is done"
    measured = f"{_number(last.throughput_samples_per_s)} samples/s in the last epoch"
    return measured if expected is None else f"{measured}, expected {_number(expected)}"


def _noise(record: TrainingRecord) -> list[tuple[str, str]]:
    """Say what the gradient noise scale was at last, or why it was not measured."""
    last = record.last_trained
    if last is not None and last.noise is not None:
        return [("noise scale", describe_noise(last.noise))]
    if last is not None and last.noise_obstacle is not None:
        return [("noise scale", f"not measured: {last.noise_obstacle}")]
    return []


def _loss(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}" if isfinite(value) else "NaN"


def _number(value: float | None) -> str:
    return format_number(value) if value else ""


def _decimal(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _whole(value: float | None) -> str:
    return "" if value is None else f"{value:.0f}"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.0f} %"


def _bytes(value: float | None) -> str:
    return "" if value is None else format_bytes(round(value))


_ValueOf = Callable[[HostUsage], float | None]
_TextOf = Callable[[float | None], str]
_SUMMED_USE: tuple[tuple[str, _ValueOf, _TextOf], ...] = (
    ("cores in use", lambda use: _mean(use, use.busy_cores), _decimal),
    ("cores waiting for a disk", lambda use: _mean(use, use.io_wait_cores), _decimal),
    ("received a second", lambda use: _mean(use, use.received_bytes_per_s), _bytes),
    ("sent a second", lambda use: _mean(use, use.sent_bytes_per_s), _bytes),
    ("memory, at most", lambda use: _maximum(use.memory_bytes), _bytes),
    ("threads, at most", lambda use: _maximum(use.threads), _whole),
)
_WAITS = (("waiting for input", "input_wait"), ("waiting for gradients", "sync_wait"))
