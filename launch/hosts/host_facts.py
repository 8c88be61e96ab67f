"""What is known of a host that a job would run on? Frozen values and their JSON form."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from probes.errors import InvalidHardwareError
from probes.hardware import Hardware

MARK = "ddlplan_host_facts"
"""First key of the document: logins may write lines of their own around it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldAddress:
    """An IP address that an interface of the host has."""

    interface: str

    kind: str
    """As `probes.hardware.NetworkInterface` has it."""

    address: str

    network: str
    """Those it reaches without a router: ``10.0.0.0/24``."""

    speed_bytes_per_s: float | None = None
    """Nominal, one way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFacts:
    """What lies at the place of the data set."""

    path: str

    kind: str
    """``folder``, ``file`` or ``missing``."""

    num_files: int | None = None
    num_bytes: int | None = None

    digest: str | None = None
    """Of the sorted relative names and sizes of all files; their contents are not read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """What a host says of itself. ``None`` and empty is what it could not find out."""

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
    """By the host's own clock: when the looking began."""

    clock_s: float
    """Likewise, when it was done."""

    addresses: tuple[HeldAddress, ...] = ()
    """Of interfaces that are up."""

    routes: Mapping[str, str | None] = field(default_factory=dict)
    """For addresses of other hosts: that of this host from which packets go there."""

    reached_at: str | None = None
    """The address of this host that ssh came in by."""

    free_ports: int | None = None
    """TCP ports of the ephemeral range that could be held at the same time, of those tried."""

    hardware: Hardware | None = None
    """As a quick probe finds it."""

    use_case: str | None = None
    """Digest of the use case's own file, where it is one."""

    data: DataFacts | None = None

    runs_fault: str | None = None
    """Why the job cannot leave its files there, where that was asked."""

    problems: Mapping[str, str] = field(default_factory=dict)
    """Why a fact is not known, by its name."""

    def to_json(self) -> dict[str, Any]:
        """Give the facts as plain values that JSON can hold."""
        hardware = None if self.hardware is None else self.hardware.to_json()
        return {MARK: 1, **asdict(self), "hardware": hardware}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> HostFacts:
        """Read facts back from `to_json`; unknown keys are left out.

        Raises:
            ValueError: A key is missing or a value is of the wrong shape.
        """
        known = {key: values[key] for key in cls.__dataclass_fields__ if key in values}
        try:
            known["addresses"] = tuple(HeldAddress(**held) for held in known.get("addresses", ()))
            if (data := known.get("data")) is not None:
                known["data"] = DataFacts(**data)
            if (hardware := known.get("hardware")) is not None:
                known["hardware"] = Hardware.from_json(hardware)
            for key in ("began_s", "clock_s"):
                known[key] = float(known[key])
            for key in ("versions", "routes", "problems"):
                known[key] = dict(known.get(key, {}))
            return cls(**known)
        except (TypeError, KeyError, AttributeError, InvalidHardwareError) as error:
            raise ValueError(f"facts of a host: {error}") from error


def find_facts(text: str) -> HostFacts | None:
    """Find the facts in what a program on a host wrote, among whatever its login wrote there."""
    for line in reversed(text.splitlines()):
        if line.startswith(f'{{"{MARK}"'):
            try:
                return HostFacts.from_json(json.loads(line))
            except ValueError:
                return None
    return None
