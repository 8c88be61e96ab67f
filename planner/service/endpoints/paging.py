"""Paging: lists in parts, the newest first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

from planner.service.endpoints.endpoint import Found, Parameter, Values

PER_PAGE, MOST_PER_PAGE = 50, 500
PAGED = (
    Parameter(name="before", about="only what has a lower number", is_number=True),
    Parameter(
        name="limit",
        about=f"at most so many, {PER_PAGE} by default and {MOST_PER_PAGE} at most",
        is_number=True,
    ),
)


def page(
    values: Values,
    find: Callable[..., Sequence[Any]],
    to_json: Callable[[Any], Any] = lambda one: one,
    *,
    number: Callable[[Any], int | None] = attrgetter("id"),
) -> Found:
    """Give a part of a list, and where the rest begins; ``find`` takes ``before`` and ``most``."""
    limit = min(values["limit"] or PER_PAGE, MOST_PER_PAGE)
    found = find(before=values["before"], most=limit + 1)
    shown = found[:limit]
    rest = number(shown[-1]) if len(found) > limit else None
    return Found(data=[to_json(one) for one in shown], next_before=rest)
