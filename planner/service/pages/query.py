"""Query: values of an address, checked, and the addresses of other parts of a list."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Generic, TypeVar
from urllib.parse import urlencode

from planner.quantities import printable
from planner.service.pages.view import PageRequest

T = TypeVar("T")

PER_PAGE = 40
_MOST_CHARACTERS = 1000


class QueryError(Exception):
    """A value of an address that the page does not know; the message says what it expects."""


def find_text(request: PageRequest, name: str) -> str | None:
    """Give a text of the query; ``None`` where it is empty or missing."""
    given = request.query.get(name, ())
    text = given[0].strip() if given else ""
    if len(text) > _MOST_CHARACTERS:
        raise QueryError(f"{name} has more than {_MOST_CHARACTERS} characters")
    return text or None


def find_choice(request: PageRequest, name: str, choices: Sequence[str]) -> str | None:
    """Give one of some texts; ``None`` where it is missing."""
    text = find_text(request, name)
    if text is not None and text not in choices:
        raise QueryError(f"{name}={printable(text[:60])}: choose one of {', '.join(choices)}")
    return text


def find_numbers(request: PageRequest, name: str, *, most: int) -> list[int]:
    """Give the whole numbers above 0 of a query, each once, in their order; at most so many."""
    texts = [
        text for given in request.query.get(name, ()) for text in given.replace(",", " ").split()
    ]
    for text in texts:
        if not (text.isascii() and text.isdecimal() and len(text) <= 15 and int(text) > 0):
            raise QueryError(f"{name}={printable(text[:60])}: expected a whole number above 0")
    numbers = list(dict.fromkeys(map(int, texts)))
    if len(numbers) > most:
        raise QueryError(f"{len(numbers)} numbers: at most {most} are shown side by side")
    return numbers


def find_number(request: PageRequest, name: str) -> int | None:
    """Give a whole number above 0; ``None`` where it is missing."""
    found = find_numbers(request, name, most=1)
    return found[0] if found else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPart(Generic[T]):
    """A part of a list, the newest first."""

    items: Sequence[T]

    next_address: str | None
    """Of what is older; ``None`` at the end."""

    first_address: str | None
    """Of the newest; ``None`` where these are."""


def read_part(
    request: PageRequest,
    find: Callable[..., Sequence[T]],
    *,
    number: Callable[[T], int | None] = attrgetter("id"),
    per_page: int = PER_PAGE,
    anchor: str = "",
) -> ListPart[T]:
    """Read the part of a list that a request asks for by ``before``.

    Args:
        request: With all other values of the query, which the addresses keep.
        find: Gives the items; told ``before``, those with a lower number, and ``most`` of them.
        number: Of an item.
        per_page: Items of a part.
        anchor: Of the list in its page.
    """
    before = find_number(request, "before")
    found = find(before=before, most=per_page + 1)
    shown = found[:per_page]
    rest = number(shown[-1]) if len(found) > per_page else None
    return ListPart(
        items=shown,
        next_address=None if rest is None else address(request, anchor, before=str(rest)),
        first_address=None if before is None else address(request, anchor, before=None),
    )


def address(request: PageRequest, anchor: str = "", **changed: str | None) -> str:
    """Give the address of a request with some values of its query changed."""
    kept = [
        (name, value)
        for name, values in request.query.items()
        for value in values
        if name not in changed and value
    ]
    pairs = [*kept, *((name, value) for name, value in changed.items() if value is not None)]
    query = urlencode(pairs)
    return request.path + (f"?{query}" if query else "") + (f"#{anchor}" if anchor else "")
