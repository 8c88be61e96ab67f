"""Search: things found by a part of a name."""

from __future__ import annotations

from planner.api import names
from planner.service.pages.query import find_text
from planner.service.pages.view import Context, PageRequest, View

_MOST = 25
_ADDRESSES = {
    "machine": "/machines",
    "study": "/studies",
    "plan": "/plans",
    "training": "/trainings",
    "sweep": "/sweeps",
    "job": "/jobs",
}


def show(request: PageRequest, context: Context) -> View:
    """Show what was found."""
    text = find_text(request, "name")
    found = [] if text is None else names.find(text, most=_MOST, db=context.db)
    groups = {kind: [one for one in found if one.kind == kind] for kind in _ADDRESSES}
    return View(
        template="search.html",
        title="Search by name",
        values={
            "text": text,
            "groups": {kind: ones for kind, ones in groups.items() if ones},
            "addresses": _ADDRESSES,
            "most": _MOST,
        },
    )
