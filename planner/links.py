"""What can the network between hosts do? As it was measured, by the names of the hosts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from probes.all_reduce import AllReduce  # which load NumPy
    from probes.links import Link


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLink:
    """What two hosts can exchange."""

    first: str
    second: str
    latency_s: float
    """From one to the other."""

    bytes_per_s: float
    """Each way, while both send."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SumTime:
    """What it took to sum numbers over all the hosts that were measured together."""

    message_bytes: int
    """Of each host."""

    time_s: float
    """Median, of the slowest host each time."""

    cpu_s: tuple[float, ...]
    """Processor time of each host, in the order of `MeasuredLinks.hosts`, while all cores compute
    if so measured."""

    interrupts_s: tuple[float, ...]
    """Time for packets on top of that, likewise."""

    beside_s: float | None = None
    """As ``time_s`` while all cores compute; not measured by older releases, nor where a host could
    not be made to."""


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

    sums: tuple[SumTime, ...] = ()
    """Of all hosts, the smallest message first."""

    @property
    def hardware(self) -> dict[str, str]:
        """Fingerprints by host."""
        return dict(zip(self.hosts, self.fingerprints, strict=True))

    def to_json(self) -> dict[str, Any]:
        """Give what was measured as plain values, without hosts and time."""
        return {
            "links": [asdict(link) for link in self.links],
            "sums": [asdict(one) for one in self.sums],
        }

    @classmethod
    def from_json(
        cls,
        values: Mapping[str, Any],
        *,
        hosts: tuple[str, ...],
        fingerprints: tuple[str, ...],
        measured_at: datetime,
    ) -> MeasuredLinks:
        """Read a measurement back from `to_json`."""
        return cls(
            hosts=hosts,
            fingerprints=fingerprints,
            measured_at=measured_at,
            links=tuple(HostLink(**link) for link in values["links"]),
            sums=tuple(_sum_from_json(one, len(hosts)) for one in values["sums"]),
        )

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
        """Put host names in the place of ranks: what probes give is of ranks."""
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
                SumTime(
                    message_bytes=one.message_bytes,
                    time_s=one.times.median_s,
                    cpu_s=one.cpu_s,
                    interrupts_s=one.interrupts_s,
                    beside_s=one.beside_s,
                )
                for one in sorted(all_reduces, key=lambda one: one.message_bytes)
            ),
        )


def _sum_from_json(values: Mapping[str, Any], hosts: int) -> SumTime:
    """Read a sum back, also one of a release that kept only what the busiest host spent."""
    spent = {name: values.get(name, 0.0) for name in ("cpu_s", "interrupts_s")}
    by_host = {
        name: tuple(found) if isinstance(found, Sequence) else (found,) * hosts
        for name, found in spent.items()
    }
    return SumTime(**{**values, **by_host})
