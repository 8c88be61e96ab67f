"""Named thing: a line about something that the database holds, for those who look for a name."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedThing:
    """A machine, study, plan, training, sweep or job, in a few words."""

    kind: str
    """``machine``, ``study``, ``plan``, ``training``, ``sweep`` or ``job``."""

    id: int
    name: str
    """Of the machine; else the use case, or the command of a job."""

    place: str
    """Machine of it."""

    at: datetime
    """When it was last seen, found, or begun."""
