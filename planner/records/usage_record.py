"""Usage record: what a host used over a training, and what its steps waited for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import pairwise


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageCurve:
    """A quantity over time, a value for each point of its series; ``None`` where it is not known.

    A point covers the time from the one before it to its own.
    """

    mean: tuple[float | None, ...]

    maximum: tuple[float | None, ...]
    """The largest of the samples that the point stands for; there is one a second at most."""

    def lasting(self, time_s: Sequence[float]) -> list[tuple[float, float]]:
        """Give each known mean with the seconds that its point covers; points end at ``time_s``."""
        lengths = (later - earlier for earlier, later in pairwise((0.0, *time_s)))
        return [(v, s) for v, s in zip(self.mean, lengths, strict=True) if v is not None and s > 0]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuUsage:
    """Use of one GPU, by whatever program."""

    uuid: str

    utilisation: UsageCurve | None
    """Part of the time in which it computed, 0 to 1."""

    memory_bytes: UsageCurve | None
    power_w: UsageCurve | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostUsage:
    """Use of one host over a training, in a bounded number of points.

    All curves have as many values as `time_s`. One that has no value at all is ``None``.
    """

    time_s: tuple[float, ...]
    """End of each point, since the training was started; the same clock for all hosts."""

    busy_cores: UsageCurve | None
    """Cores that the training's processes used."""

    machine_busy_cores: UsageCurve | None
    """Cores of the machine that were not idle, whoever used them."""

    io_wait_cores: UsageCurve | None
    """Cores of the machine that were idle while a disk was waited for."""

    processes: UsageCurve | None
    """Of the training: rank, workers, loader processes, and what started them."""

    threads: UsageCurve | None

    memory_bytes: UsageCurve | None
    """Memory of these processes, to about a fifth: pages that a worker shares with the process it
    was forked from are left out, also those that it has written since."""

    received_bytes_per_s: UsageCurve | None
    """Through all interfaces of the machine but loopback."""

    sent_bytes_per_s: UsageCurve | None

    input_wait: UsageCurve | None
    """Part of the steps' time in which the host's first worker waited for its samples, 0 to 1."""

    sync_wait: UsageCurve | None
    """Part of the steps' time in which the host had nothing to do but wait for the sums of
    gradients, 0 to 1; ``None`` where the training has one host."""

    loss: UsageCurve | None
    """Training loss, of the first host alone: all hosts make the same steps."""

    samples_per_s: UsageCurve | None
    """Of the whole training, likewise."""

    noise_scale: UsageCurve | None = None
    """Gradient noise scale in samples, likewise; ``None`` where it was not measured."""

    gpus: tuple[GpuUsage, ...] = ()
    """Those of the plan."""


QUANTITIES = tuple(one.name for one in fields(HostUsage) if one.name not in ("time_s", "gpus"))
"""Names of a host's curves."""

GPU_QUANTITIES = tuple(one.name for one in fields(GpuUsage) if one.name != "uuid")
