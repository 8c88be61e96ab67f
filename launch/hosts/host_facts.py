"""Facts of a host: frozen values and their JSON form."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network

from probes import codec
from probes.child_process import find_document
from probes.errors import InvalidDocumentError
from probes.hardware import Hardware

DOCUMENT_KEY = "ddlplan_host_facts"
"""First key of the document: logins may write lines of their own around it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostAddress:
    """An IP address that an interface of the host has."""

    interface: str

    kind: str
    """As `probes.hardware.NetworkInterface` has it."""

    address: str

    network: str
    """Those it reaches without a router: ``10.0.0.0/24``."""

    speed_bytes_per_s: float | None = None
    """Nominal, one way."""

    def __post_init__(self) -> None:  # another host has written it
        ip_address(self.address)
        ip_network(self.network)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFacts:
    """Facts of the data set."""

    path: str

    kind: str
    """``folder``, ``file`` or ``missing``."""

    num_files: int | None = None
    num_bytes: int | None = None

    digest: str | None = None
    """Of the sorted relative names and sizes of all files; their contents are not read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """Facts of a host. ``None`` and empty: not known."""

    host_name: str

    python: str
    """Version."""

    executable: str

    package: str
    """Folder that ddlplan is imported from."""

    versions: Mapping[str, str | None] = field(default_factory=dict)
    """Of packages by name, as they are installed; ``None`` for one that is not."""

    source: str | None = None
    """Digest of ddlplan's own files."""

    began_s: float
    """Start of the collection, by the host's own clock."""

    clock_s: float
    """Its end, likewise."""

    addresses: tuple[HostAddress, ...] = ()
    """Of interfaces that are up."""

    routes: Mapping[str, str | None] = field(default_factory=dict)
    """For addresses of other hosts: this host's own from which packets go there."""

    reached_at: str | None = None
    """The address of this host that ssh came in by."""

    free_ports: int | None = None
    """TCP ports of the ephemeral range that could be open at the same time, of those tried."""

    hardware: Hardware | None = None
    """As a quick probe finds it."""

    use_case: str | None = None
    """Digest of the use case's own file, where it is one."""

    data: DataFacts | None = None

    runs_fault: str | None = None
    """Why the job cannot write its files there, where that was checked."""

    problems: Mapping[str, str] = field(default_factory=dict)
    """Why a fact is not known, by its name."""


def find_facts(text: str) -> HostFacts | None:
    """Find the facts in what a program on a host wrote, among lines of its login."""
    document = find_document(text, DOCUMENT_KEY)
    with suppress(InvalidDocumentError):
        return None if document is None else codec.convert(document, HostFacts, source="facts")
    return None
