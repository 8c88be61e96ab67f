"""What did one check of one host show?"""

from __future__ import annotations

from dataclasses import dataclass

BUSY = ": is the host very busy, or a disk of it away?"
"""Ends a finding of what a host could not say of itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one check of one host showed."""

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
class Judge:
    """Makes findings about one host."""

    host: str

    def ok(self, check: str, text: str) -> Finding:
        """Find nothing to complain about."""
        return Finding(host=self.host, check=check, state="ok", text=text)

    def note(self, check: str, text: str) -> Finding:
        """Find what works, but is worth knowing."""
        return Finding(host=self.host, check=check, state="note", text=text)

    def fail(self, check: str, text: str) -> Finding:
        """Find what keeps the host out of a job."""
        return Finding(host=self.host, check=check, state="fail", text=text)
