"""Figures of what the hosts of a training used over time, and what their steps waited for."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from planner.quantities import format_duration
from planner.records.usage_record import HostUsage, UsageCurve
from planner.report.figures.curves import Curve, line_plot
from planner.report.figures.figure import Figure

_ROWS = 16
_MOST_CURVES = 6
"""Of one figure: a job may have a thousand GPUs."""

_GIB, _MEGA, _KILO = 2.0**30, 1e6, 1e3


@dataclass(frozen=True, slots=True, kw_only=True)
class _UsedQuantity:
    title: str
    unit: str
    curve: Callable[[HostUsage], UsageCurve | None]
    size: float = 1.0
    from_zero: bool = True
    note: str = ""


_LEARNING = (
    _UsedQuantity(title="Loss over time", unit="loss", curve=lambda use: use.loss, from_zero=False),
    _UsedQuantity(
        title="Samples per second over time", unit="samples/s", curve=lambda use: use.samples_per_s
    ),
    _UsedQuantity(
        title="Gradient noise scale over time",
        unit="samples",
        curve=lambda use: use.noise_scale,
        note="Batches far below it keep the worth of each sample, batches far above it waste them.",
    ),
    _UsedQuantity(
        title="Waiting for input",
        unit="% of the steps' time",
        curve=lambda use: use.input_wait,
        size=0.01,
        note="Of the first worker of each host.",
    ),
    _UsedQuantity(
        title="Waiting for the sum of gradients",
        unit="% of the steps' time",
        curve=lambda use: use.sync_wait,
        size=0.01,
    ),
)
_MACHINE = (
    _UsedQuantity(title="Cores in use", unit="cores", curve=lambda use: use.busy_cores),
    _UsedQuantity(
        title="Cores in use, by whatever program",
        unit="cores",
        curve=lambda use: use.machine_busy_cores,
    ),
    _UsedQuantity(
        title="Cores that waited for a disk", unit="cores", curve=lambda use: use.io_wait_cores
    ),
    _UsedQuantity(title="Memory", unit="GiB", curve=lambda use: use.memory_bytes, size=_GIB),
    _UsedQuantity(title="Threads", unit="threads", curve=lambda use: use.threads),
    _UsedQuantity(
        title="Network, received",
        unit="MB/s",
        curve=lambda use: use.received_bytes_per_s,
        size=_MEGA,
    ),
    _UsedQuantity(
        title="Network, sent", unit="MB/s", curve=lambda use: use.sent_bytes_per_s, size=_MEGA
    ),
)


def learning_figures(usage: Mapping[str, HostUsage]) -> list[Figure]:
    """Show loss and rate over time, and what steps waited for."""
    return _figures(_LEARNING, usage)


def machine_use_figures(usage: Mapping[str, HostUsage]) -> list[Figure]:
    """Show the use of processors, memory, disks, network and GPUs."""
    found = _figures(_MACHINE, usage)
    gpus: tuple[tuple[str, str, str, float], ...] = (
        ("GPUs in use", "utilisation", "% of the time", 0.01),
        ("Memory of the GPUs", "memory_bytes", "GiB", _GIB),
        ("Power of the GPUs", "power_w", "W", 1.0),
    )
    for title, name, unit, size in gpus:
        curves = [
            (f"{host}, GPU {number}", use, curve)
            for host, use in usage.items()
            for number, gpu in enumerate(use.gpus)
            if (curve := getattr(gpu, name)) is not None
        ]
        figure = _figure(title, unit, size, curves)
        found += [] if figure is None else [figure]
    return found


def _figures(quantities: Sequence[_UsedQuantity], usage: Mapping[str, HostUsage]) -> list[Figure]:
    found = []
    for one in quantities:
        curves = [
            (host, use, curve)
            for host, use in usage.items()
            if (curve := one.curve(use)) is not None
        ]
        figure = _figure(
            one.title, one.unit, one.size, curves, from_zero=one.from_zero, note=one.note
        )
        found += [] if figure is None else [figure]
    return found


def _figure(
    title: str,
    unit: str,
    size: float,
    found: Sequence[tuple[str, HostUsage, UsageCurve]],
    *,
    from_zero: bool = True,
    note: str = "",
) -> Figure | None:
    known = [(label, use, c) for label, use, c in found if any(y is not None for y in c.mean)]
    shown = known[:_MOST_CURVES]
    if not shown:
        return None
    last_s = max(use.time_s[-1] for _, use, _ in shown)
    time_unit, second = _time_unit(last_s)
    if unit == "MB/s" and max(y or 0 for _, _, c in shown for y in c.mean) < 0.1 * _MEGA:
        unit, size = "kB/s", _KILO
    curves = [
        Curve(
            label=label,
            points=[
                (x / second, None if y is None else y / size)
                for x, y in zip(use.time_s, curve.mean, strict=True)
            ],
        )
        for label, use, curve in shown
    ]
    more = "" if len(known) == len(shown) else f" {len(shown)} of {len(known)} are drawn."
    return Figure(
        title=title,
        svg=line_plot(
            curves,
            title=title,
            x_title=f"{time_unit} since the start",
            y_title=unit,
            from_zero=from_zero,
            ends=(0.0, last_s / second),
        ),
        columns=("until", *(label for label, _, _ in shown)),
        rows=_rows(shown, size, last_s),
        note=(note + more).strip(),
    )


def _rows(
    shown: Sequence[tuple[str, HostUsage, UsageCurve]], size: float, last_s: float
) -> list[tuple[str, ...]]:
    """Give the mean of each stretch of time."""
    stretch_s = last_s / _ROWS or 1.0
    columns = []
    for _, use, curve in shown:
        parts: list[list[float]] = [[] for _ in range(_ROWS)]
        for x, y in zip(use.time_s, curve.mean, strict=True):
            if y is not None and math.isfinite(y):
                parts[max(0, min(_ROWS - 1, math.ceil(x / stretch_s) - 1))].append(y / size)
        columns.append([f"{fmean(part):.4g}" if part else "" for part in parts])
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
