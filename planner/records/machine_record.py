"""Machine record: a machine as it was last seen, with what was measured of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from probes.hardware import Hardware


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineRecord:
    """A machine as stored. With other hardware in it, it is another one."""

    id: int
    name: str
    fingerprint: str
    first_seen: datetime
    last_seen: datetime

    hardware: Hardware | None = None
    """Its last probe; ``None`` where there is none, or one of another release's form."""

    probed_at: datetime | None = None

    is_current: bool = True
    """Whether the machine of this name has this hardware now, rather than had it."""
