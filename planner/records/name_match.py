"""Match of a search by name: a machine, study, plan, training, sweep or job of the database."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class NameMatch:
    """Something whose name has the text that was searched for."""

    kind: str
    """``machine``, ``study``, ``plan``, ``training``, ``sweep`` or ``job``."""

    id: int
    name: str
    """Of the machine; else the use case, or the command of a job."""

    place: str
    """Machine of it."""

    at: datetime
    """When it was last seen, found, or begun."""
