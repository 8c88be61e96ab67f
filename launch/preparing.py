"""Who hears how the preparation of data gets on?"""

from __future__ import annotations

from typing import Protocol


class PrepareReport(Protocol):
    """Hears how the preparation of data gets on."""

    def progress(self, done: int, total: int, what: str) -> None:
        """Hear that ``done`` of ``total`` pieces of the work called ``what`` are finished."""

    def warning(self, message: str) -> None:
        """Hear of something that does not stop the work, in one line with its remedy."""
