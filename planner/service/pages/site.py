"""Site: the addresses of all pages, and what each is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """An answer of the server."""

    status: int
    html: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRequest:
    """What a browser asks for."""

    path: str
    numbers: Mapping[str, int] = field(default_factory=dict)
    """Of the address: ``id`` of ``/plans/{id}``."""

    query: Mapping[str, Sequence[str]] = field(default_factory=dict)


class Site:
    """Gives pages of a database.

    Args:
        db: The database.
        allows_actions: Whether pages offer to start and end jobs.
        use_cases: Those that may be tuned.
    """

    def __init__(
        self,
        db: str = "planner.db",
        *,
        allows_actions: bool = False,
        use_cases: Sequence[str] = (),
    ) -> None:
        self._db = db

    @property
    def paths(self) -> Sequence[str]:
        """Addresses of pages; ``{id}`` stands for a whole number."""
        return ("/",)

    def show(self, path: str, request: PageRequest) -> Page:
        """Give a page, or one that says why there is none.

        Args:
            path: One of `paths`.
            request: What was asked for.
        """
        return Page(status=200, html="<!doctype html><title>ddlplan</title><h1>ddlplan</h1>")
