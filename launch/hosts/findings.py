"""Findings of the checks of hosts: which can take part, and the networks between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from launch.errors import HostUnreachableError
from launch.hosts.host_facts import HostFacts
from launch.hosts.host_line import Host
from probes.hardware import Hardware

BUSY = ": is the host very busy, or a disk of it away?"
"""End of a finding about a fact that a host could not collect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Result of one check of one host."""

    host: str
    check: str

    state: str
    """``ok``, ``note`` (works, but worth knowing) or ``fail``."""

    text: str

    @property
    def is_failure(self) -> bool:
        """Whether the host cannot take part."""
        return self.state == "fail"


@dataclass(frozen=True, slots=True)
class FindingFactory:
    """Makes findings about one host."""

    host: str

    def ok(self, check: str, text: str) -> Finding:
        """Make a finding of what is as it should be."""
        return Finding(host=self.host, check=check, state="ok", text=text)

    def note(self, check: str, text: str) -> Finding:
        """Make a finding of what works, but is worth knowing."""
        return Finding(host=self.host, check=check, state="note", text=text)

    def fail(self, check: str, text: str) -> Finding:
        """Make a finding of what excludes the host from a job."""
        return Finding(host=self.host, check=check, state="fail", text=text)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedHosts:
    """Result of the checks of a job's hosts."""

    hosts: tuple[Host, ...]

    findings: tuple[Finding, ...]
    """In the order of the hosts, and for each in that of the checks."""

    facts: Mapping[str, HostFacts]
    """By name, of the hosts that gave them."""

    here: HostFacts
    """Facts of this machine, whether it is one of the hosts or not."""

    this_machine: str | None = None
    """The name that the host file has for this machine; ``None`` where it is none of them."""

    networks: tuple[str, ...] = ()
    """Over which the good hosts reach each other, in CIDR form; empty for one host."""

    addresses: Mapping[str, str] = field(default_factory=dict)
    """By name: a host's address there."""

    def get_hardware(self, host: str) -> Hardware:
        """Give what a host has.

        Raises:
            HostUnreachableError: It could not say.
        """
        hardware = self.facts[host].hardware
        if hardware is None:
            raise HostUnreachableError(f"host {host}: it cannot say what hardware it has")
        return hardware

    @property
    def failures(self) -> tuple[Finding, ...]:
        """Findings that exclude hosts from a job."""
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


def require_no_failure(findings: Sequence[Finding]) -> None:
    """Check that there is no failure among findings.

    Raises:
        HostUnreachableError: There is one. The message has the first, and how many more hosts fail.
    """
    if not (failures := [finding for finding in findings if finding.is_failure]):
        return
    first = failures[0]
    others = len({finding.host for finding in failures} - {first.host})
    more = f" (and {others} more: see ddlplan doctor --hosts)" if others else ""
    raise HostUnreachableError(f"host {first.host}: {first.check}: {first.text}{more}")
