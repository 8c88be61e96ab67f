"""Figures of what the hosts of a training used over time, and what their steps waited for."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from planner.quantities import format_duration, format_value
from planner.records.usage_record import GpuUsage, HostUsage, UsageCurve
from planner.report.figures.curves import Curve, line_plot
from planner.report.figures.figure import Figure

_ROWS = 16
_MOST_CURVES = 6
"""Of one figure: a job may have a thousand GPUs."""

_GIB, _MEGA, _KILO = 2.0**30, 1e6, 1e3

_Shown = Sequence[tuple[str, Sequence[float], UsageCurve]]
"""Curves with their labels and times."""


@dataclass(frozen=True, slots=True)
class _UsedQuantity:
    name: str
    """Of the curve in the use of a host, or of a GPU."""

    title: str
    unit: str
    size: float = 1.0
    from_zero: bool = True
    note: str = ""


_LEARNING = (
    _UsedQuantity("loss", "Loss over time", "loss", from_zero=False),
    _UsedQuantity("samples_per_s", "Samples per second over time", "samples/s"),
    _UsedQuantity(
        "noise_scale",
        "Gradient noise scale over time",
        "samples",
        note="Batches far below it keep the worth of each sample, batches far above it waste them.",
    ),
    _UsedQuantity(
        "input_wait",
        "Waiting for input",
        "% of the steps' time",
        size=0.01,
        note="Of the first worker of each host.",
    ),
    _UsedQuantity("sync_wait", "Waiting for the sum of gradients", "% of the steps' time", 0.01),
)
_MACHINE = (
    _UsedQuantity("busy_cores", "Cores in use", "cores"),
    _UsedQuantity("machine_busy_cores", "Cores in use, by whatever program", "cores"),
    _UsedQuantity("io_wait_cores", "Cores that waited for a disk", "cores"),
    _UsedQuantity("memory_bytes", "Memory", "GiB", _GIB),
    _UsedQuantity("threads", "Threads", "threads"),
    _UsedQuantity("received_bytes_per_s", "Network, received", "MB/s", _MEGA),
    _UsedQuantity("sent_bytes_per_s", "Network, sent", "MB/s", _MEGA),
)
_GPUS = (
    _UsedQuantity("utilisation", "GPUs in use", "% of the time", 0.01),
    _UsedQuantity("memory_bytes", "Memory of the GPUs", "GiB", _GIB),
    _UsedQuantity("power_w", "Power of the GPUs", "W"),
)


def learning_figures(usage: Mapping[str, HostUsage]) -> list[Figure]:
    """Show loss and rate over time, and what steps waited for."""
    return _figures(_LEARNING, [(host, use.time_s, use) for host, use in usage.items()])


def machine_use_figures(usage: Mapping[str, HostUsage]) -> list[Figure]:
    """Show the use of processors, memory, disks, network and GPUs."""
    hosts = [(host, use.time_s, use) for host, use in usage.items()]
    gpus = [
        (f"{host}, GPU {number}", use.time_s, gpu)
        for host, use in usage.items()
        for number, gpu in enumerate(use.gpus)
    ]
    return [*_figures(_MACHINE, hosts), *_figures(_GPUS, gpus)]


def _figures(
    quantities: Sequence[_UsedQuantity],
    used: Sequence[tuple[str, Sequence[float], HostUsage | GpuUsage]],
) -> list[Figure]:
    found = []
    for one in quantities:
        curves = [
            (label, time_s, curve)
            for label, time_s, use in used
            if (curve := getattr(use, one.name)) is not None
        ]
        if (figure := _figure(one, curves)) is not None:
            found.append(figure)
    return found


def _figure(one: _UsedQuantity, found: _Shown) -> Figure | None:
    known = [(label, s, c) for label, s, c in found if any(y is not None for y in c.mean)]
    shown = known[:_MOST_CURVES]
    if not shown:
        return None
    last_s = max(time_s[-1] for _, time_s, _ in shown)
    time_unit, second = _time_unit(last_s)
    unit, size = one.unit, one.size
    if unit == "MB/s" and max(y or 0 for _, _, c in shown for y in c.mean) < 0.1 * _MEGA:
        unit, size = "kB/s", _KILO
    curves = [
        Curve(
            label=label,
            points=[
                (x / second, None if y is None else y / size)
                for x, y in zip(time_s, curve.mean, strict=True)
            ],
        )
        for label, time_s, curve in shown
    ]
    more = "" if len(known) == len(shown) else f" {len(shown)} of {len(known)} are drawn."
    return Figure(
        title=one.title,
        svg=line_plot(
            curves,
            title=one.title,
            x_title=f"{time_unit} since the start",
            y_title=unit,
            from_zero=one.from_zero,
            ends=(0.0, last_s / second),
        ),
        columns=("until", *(label for label, _, _ in shown)),
        rows=_rows(shown, size, last_s),
        note=(one.note + more).strip(),
    )


def _rows(shown: _Shown, size: float, last_s: float) -> list[tuple[str, ...]]:
    """Give the mean of each stretch of time."""
    stretch_s = last_s / _ROWS or 1.0
    columns = []
    for _, time_s, curve in shown:
        parts: list[list[float]] = [[] for _ in range(_ROWS)]
        for x, y in zip(time_s, curve.mean, strict=True):
            if y is not None and math.isfinite(y):
                parts[max(0, min(_ROWS - 1, math.ceil(x / stretch_s) - 1))].append(y / size)
        columns.append([format_value(fmean(part)) if part else "" for part in parts])
    return [
        (format_duration((number + 1) * stretch_s), *(column[number] for column in columns))
        for number in range(_ROWS)
        if any(column[number] for column in columns)
    ]


def _time_unit(last_s: float) -> tuple[str, float]:
    for unit, size in (("hours", 3600.0), ("minutes", 60.0)):
        if last_s >= 3 * size:
            return unit, size
    return "seconds", 1.0
