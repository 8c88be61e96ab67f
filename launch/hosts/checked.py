"""Which hosts can take part in a job, and over which networks do they reach each other?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from launch.errors import HostUnreachableError
from launch.hosts.finding import Finding
from launch.hosts.host_facts import HostFacts
from launch.hosts.line import Host


@dataclass(frozen=True, slots=True, kw_only=True)
class HostsChecked:
    """What the checks of a job's hosts showed."""

    hosts: tuple[Host, ...]

    findings: tuple[Finding, ...]
    """In the order of the hosts, and for each in that of the checks."""

    facts: Mapping[str, HostFacts]
    """By name, of the hosts that answered."""

    here: HostFacts
    """Facts of this machine, whether it is one of the hosts or not."""

    this_machine: str | None = None
    """The name that the host file has for this machine; ``None`` where it takes no part."""

    networks: tuple[str, ...] = ()
    """Over which the good hosts reach each other, in CIDR form; empty for one host."""

    addresses: Mapping[str, str] = field(default_factory=dict)
    """By name: a host's address there."""

    @property
    def failures(self) -> tuple[Finding, ...]:
        """What keeps hosts out of a job."""
        return tuple(finding for finding in self.findings if finding.is_failure)

    @property
    def good(self) -> tuple[Host, ...]:
        """The hosts that no check failed, in the order of the file."""
        bad = {finding.host for finding in self.failures}
        return tuple(host for host in self.hosts if host.name not in bad)

    @property
    def ranked(self) -> tuple[Host, ...]:
        """The good hosts in the order of their ranks: this machine first, if it is one of them."""
        return tuple(sorted(self.good, key=lambda host: host.name != self.this_machine))

    def require_good(self) -> None:
        """See that every host can take part.

        Raises:
            HostUnreachableError: One cannot. The message names the first such host, and the way
                out.
        """
        require_no_failure(self.findings)


def require_no_failure(findings: Sequence[Finding]) -> None:
    """See that no check failed.

    Raises:
        HostUnreachableError: One did. The message has the first, and how many more hosts fail.
    """
    if not (failures := [finding for finding in findings if finding.is_failure]):
        return
    first = failures[0]
    others = len({finding.host for finding in failures} - {first.host})
    more = f" (and {others} more: see ddlplan doctor --hosts)" if others else ""
    raise HostUnreachableError(f"host {first.host}: {first.check}: {first.text}{more}")
