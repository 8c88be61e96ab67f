"""Series of what a host uses: bounded points over time, which become longer as a training does."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from launch.reports import HostUsed
from planner.records.usage_record import GPU_QUANTITIES, QUANTITIES, GpuUsage, HostUsage, UsageCurve

MOST_POINTS = 600
"""Of a series: each is a second in the first ten minutes, a minute after ten hours. In JSON that
is about 140 KiB for a host with a GPU."""

_FIGURES = 4
_SYSTEM_QUANTITIES = (
    *("busy_cores", "machine_busy_cores", "io_wait_cores", "processes", "threads", "memory_bytes"),
    *("received_bytes_per_s", "sent_bytes_per_s"),
)
"""That are not those of its steps."""


@dataclass(frozen=True, slots=True)
class _Amount:
    """Values with their weights, as far as a curve needs them."""

    weighted_sum: float
    weight: float
    maximum: float

    def __add__(self, other: _Amount) -> _Amount:
        return _Amount(
            self.weighted_sum + other.weighted_sum,
            self.weight + other.weight,
            max(self.maximum, other.maximum),
        )

    @property
    def mean(self) -> float:
        return self.weighted_sum / self.weight


@dataclass(slots=True)
class _Point:
    time_s: float
    samples: int = 0
    amounts: dict[str, _Amount] = field(default_factory=dict)

    def add(self, time_s: float, samples: int, amounts: Mapping[str, _Amount]) -> None:
        """Let the point stand for more samples, which came after its own."""
        self.time_s = time_s
        self.samples += samples
        for name, amount in amounts.items():
            mine = self.amounts.get(name)
            self.amounts[name] = amount if mine is None else mine + amount


class UsageSeries:
    """Use of one host. When there are too many points, each two become one.

    Args:
        is_first: Whether the host is the first one, whose losses are those of the training.
        has_syncs: Whether there are other hosts to wait for.
    """

    def __init__(self, *, is_first: bool, has_syncs: bool) -> None:
        self._is_first = is_first
        self._has_syncs = has_syncs
        self._points: list[_Point] = []
        self._samples_of_point = 1
        self._gpus: dict[str, None] = {}

    def add(self, time_s: float, used: HostUsed) -> None:
        """Add a sample that ended so long after the training was started."""
        self._gpus |= dict.fromkeys(gpu.uuid for gpu in used.use.gpus)
        if not self._points or self._points[-1].samples >= self._samples_of_point:
            if len(self._points) == MOST_POINTS:
                self._halve()
            self._points.append(_Point(time_s))
        self._points[-1].add(time_s, 1, dict(self._amounts(used)))

    def values(self) -> HostUsage:
        """Give the series so far."""
        return HostUsage(
            time_s=tuple(round(point.time_s, 2) for point in self._points),
            gpus=tuple(
                GpuUsage(
                    uuid=uuid, **{name: self._curve(f"{uuid} {name}") for name in GPU_QUANTITIES}
                )
                for uuid in self._gpus
            ),
            **{name: self._curve(name) for name in QUANTITIES},
        )

    def _halve(self) -> None:
        for first, second in zip(self._points[::2], self._points[1::2], strict=True):
            first.add(second.time_s, second.samples, second.amounts)
        self._points = self._points[::2]
        self._samples_of_point *= 2

    def _amounts(self, used: HostUsed) -> Iterator[tuple[str, _Amount]]:
        use = used.use
        values = {name: getattr(use, name) for name in _SYSTEM_QUANTITIES}
        for gpu in use.gpus:
            values |= {f"{gpu.uuid} {name}": getattr(gpu, name) for name in GPU_QUANTITIES}
        for name, value in values.items():
            if value is not None:
                yield name, _Amount(value * use.elapsed_s, use.elapsed_s, value)
        steps = used.steps
        if not steps.steps or not steps.time_s:
            return
        yield "input_wait", _share(steps.input_s, steps.time_s)
        if self._has_syncs:
            yield "sync_wait", _share(steps.sync_s, steps.time_s)
        if self._is_first:
            rate = steps.samples / steps.time_s
            yield "samples_per_s", _Amount(steps.samples, steps.time_s, rate)
            if steps.samples and math.isfinite(steps.loss_sum):
                mean = steps.loss_sum / steps.samples
                yield "loss", _Amount(steps.loss_sum, steps.samples, mean)
            if (scale := steps.noise_scale) is not None:
                yield "noise_scale", _Amount(scale * steps.time_s, steps.time_s, scale)

    def _curve(self, name: str) -> UsageCurve | None:
        amounts = [point.amounts.get(name) for point in self._points]
        if not any(amounts):
            return None
        return UsageCurve(
            mean=tuple(None if amount is None else _short(amount.mean) for amount in amounts),
            maximum=tuple(None if amount is None else _short(amount.maximum) for amount in amounts),
        )


def _share(part_s: float, whole_s: float) -> _Amount:
    """Give a part of time; what was waited for may end in a later step than it began."""
    part_s = min(part_s, whole_s)
    return _Amount(part_s, whole_s, part_s / whole_s)


def _short(value: float) -> float:
    """Give a value with as many figures as a picture can show."""
    return float(f"{value:.{_FIGURES}g}")
