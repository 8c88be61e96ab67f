"""Reports of nodes to each other and to ``ddlplan``: one JSON document each.

Rank 0 alone writes to stdout: mpirun forwards what several ranks write in pieces of a few
kilobytes, which would mix within a line.
"""

from __future__ import annotations

from dataclasses import dataclass

from launch.case_facts import CaseFacts
from launch.plan import Plan
from launch.reports import Report
from planner.exit_codes import BUG, classify_error
from probes.hardware import Hardware
from probes.network.all_reduce import AllReduce
from probes.network.links import Link


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport(Report):
    """What a node said, passed on by rank 0."""

    rank: int
    line: str
    """The report as `encode` gave it."""

    @classmethod
    def of(cls, rank: int, report: Report) -> NodeReport:
        """Put the number of the node to its report."""
        return cls(rank=rank, line=report.encode().decode())

    @property
    def report(self) -> Report:
        """The report itself."""
        return Report.decode(self.line.encode())


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeProbed(Report):
    """The node has been probed."""

    hardware: Hardware

    is_new: bool
    """Whether it was found just now, rather than known before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseDescribed(Report):
    """The use case is loaded, its data are ready: trials can begin."""

    facts: CaseFacts

    pixel_bytes: int | None
    """Size of the decoded pictures that the search keeps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlansFound(Report):
    """The search of a node that others of equal hardware wait for is over."""

    plans: tuple[Plan, ...]
    """The best first; none where no trial succeeded."""


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

    @classmethod
    def of(cls, error: Exception) -> NodeFailed:
        """Say of an error what the command on one machine says."""
        code, word = classify_error(error) or (BUG, "bug")
        message = " ".join(str(error).split()) or type(error).__name__
        return cls(code=code, error=word, message=message)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinksMeasured(Report):
    """What the network between all nodes can do."""

    links: tuple[Link, ...]
    all_reduces: tuple[AllReduce, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmPlans(Report):
    """Rank 0 tells a node: measure these plans of a node with equal hardware."""

    plans: tuple[Plan, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeadSearch(Report):
    """Rank 0 tells a node: whoever searched for you found nothing, search yourself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureNetwork(Report):
    """Rank 0 tells a node: all have done their parts, now measure the network."""

    message_bytes: tuple[int, ...]
