"""Measured speeds of the network between hosts, by host names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from probes.codec import Count, NonNegative, Positive

if TYPE_CHECKING:
    from probes.network.all_reduce import AllReduce  # which load NumPy
    from probes.network.links import Link


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLink:
    """Latency and bandwidth between two hosts."""

    first: str
    second: str
    latency_s: NonNegative
    """One way."""

    bytes_per_s: NonNegative
    """Each way, while both send."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostAllReduce:
    """Cost of an all-reduce over all hosts that were measured together."""

    message_bytes: Count
    """Of each host."""

    time_s: Positive
    """Median, of the slowest host each time."""

    cpu_s: tuple[float, ...]
    """Processor time of each host, in the order of `MeasuredLinks.hosts`, while all cores compute
    if so measured."""

    interrupts_s: tuple[float, ...]
    """Time for packets on top of that, likewise."""

    beside_s: float | None = None
    """As ``time_s`` while all cores compute; ``None`` from older releases, or where a host cannot
    compute meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredLinks:
    """One measurement of a network."""

    hosts: tuple[str, ...]
    """As the host file names them, in the order of their ranks."""

    fingerprints: tuple[str, ...]
    """Of their hardware, in the same order."""

    measured_at: datetime
    links: tuple[HostLink, ...]
    """Of every two hosts."""

    sums: tuple[HostAllReduce, ...] = ()
    """Of all hosts, the smallest message first."""

    @property
    def hardware(self) -> dict[str, str]:
        """Fingerprints by host."""
        return dict(zip(self.hosts, self.fingerprints, strict=True))

    @classmethod
    def from_ranks(
        cls,
        links: Sequence[Link],
        all_reduces: Sequence[AllReduce],
        *,
        hosts: Sequence[str],
        fingerprints: Sequence[str],
        measured_at: datetime,
    ) -> MeasuredLinks:
        """Make a measurement from those of ranks, with host names in place of ranks."""
        return cls(
            hosts=tuple(hosts),
            fingerprints=tuple(fingerprints),
            measured_at=measured_at,
            links=tuple(
                HostLink(
                    first=hosts[link.first],
                    second=hosts[link.second],
                    latency_s=link.latency_s,
                    bytes_per_s=link.bytes_per_s,
                )
                for link in links
            ),
            sums=tuple(
                HostAllReduce(
                    message_bytes=one.message_bytes,
                    time_s=one.times.median_s,
                    cpu_s=one.cpu_s,
                    interrupts_s=one.interrupts_s,
                    beside_s=one.beside_s,
                )
                for one in sorted(all_reduces, key=lambda one: one.message_bytes)
            ),
        )
