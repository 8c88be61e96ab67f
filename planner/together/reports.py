"""What do nodes tell each other and `ddlplan` while they find things out? A JSON document each.

Rank 0 alone writes to stdout: mpirun forwards what several ranks write in pieces of a few
kilobytes, which would mix within a line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from launch.plan import Plan
from launch.workers.reports import Report
from probes.all_reduce import AllReduce
from probes.links import Link
from probes.timing import Measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class FromNode(Report):
    """What a node said, passed on by rank 0."""

    rank: int
    line: str
    """The report as `encode` gave it."""

    @classmethod
    def of(cls, rank: int, report: Report) -> FromNode:
        """Put the number of the node to its report."""
        return cls(rank=rank, line=report.encode().decode())

    @property
    def report(self) -> Report:
        """The report itself."""
        return Report.decode(self.line.encode())


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeProbed(Report):
    """The node knows what it is."""

    hardware: Mapping[str, Any]
    """`Hardware.to_json`."""

    is_new: bool
    """Whether it was found just now, rather than known before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Noted(Report):
    """Something about the work that is worth a line."""

    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseLearnt(Report):
    """The use case is loaded, its data are ready: trials can begin."""

    facts: Mapping[str, Any]
    """`CaseFacts.to_json`."""

    pixel_bytes: int | None
    """Size of the decoded pictures that the search keeps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialEnded(Report):
    """One more trial."""

    result: Mapping[str, Any]
    """`TrialResult.to_json`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlansFound(Report):
    """The search of a node that others of equal hardware wait for is over."""

    plans: Sequence[Mapping[str, Any]]
    """`Plan.to_json`, the best first; none where no trial succeeded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDone(Report):
    """The node has done its part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFailed(Report):
    """The node gives up its part; what it has told before counts."""

    code: int
    """The exit code that the same error has on one machine."""

    error: str
    """Short word for it, as in JSON output."""

    message: str

    is_lost: bool = False
    """Whether the host did not say so itself: it does not answer any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinksMeasured(Report):
    """What the network between all nodes can do."""

    links: Sequence[Mapping[str, Any]]
    all_reduces: Sequence[Mapping[str, Any]]

    @classmethod
    def of(cls, links: Sequence[Link], all_reduces: Sequence[AllReduce]) -> LinksMeasured:
        """Put measured values into the form of a report."""
        return cls(
            links=[asdict(link) for link in links], all_reduces=[asdict(one) for one in all_reduces]
        )

    def values(self) -> tuple[list[Link], list[AllReduce]]:
        """Give the measured values back."""
        links = [Link(**link) for link in self.links]
        return links, [_all_reduce(values) for values in self.all_reduces]


def _all_reduce(values: Mapping[str, Any]) -> AllReduce:
    times = {name: tuple(samples) for name, samples in values["times"].items()}
    by_rank = {name: tuple(values[name]) for name in ("cpu_s", "interrupts_s")}
    return AllReduce(**{**values, **by_rank, "times": Measurement(**times)})


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRefused(Report):
    """The job cannot begin."""

    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirm(Report):
    """Rank 0 tells a node: measure these plans of a node with equal hardware."""

    plans: Sequence[Mapping[str, Any]]

    def values(self) -> list[Plan]:
        """Give the plans."""
        return [Plan.from_json(plan) for plan in self.plans]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lead(Report):
    """Rank 0 tells a node: whoever searched for you found nothing, search yourself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish(Report):
    """Rank 0 tells a node: all have done their parts, now measure the network."""

    message_bytes: Sequence[int]
