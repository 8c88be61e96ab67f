"""Databases for tests of pages: of a small lab, and of one whose every text is hostile."""

from __future__ import annotations

import sys
from pathlib import Path
from urllib.parse import parse_qs

import pytest

sys.path.append(str(Path(__file__).parent))  # last: other folders have a conftest too

from imagined_lab import NOW, Lab, fill

from planner.service.site import Page, PageRequest, Site

SMALL = Lab(machines=3, studies=3, trials=60, plans=7, trainings=7, jobs=12)
HOSTILE = (
    "<script>alert(1)</script>\"'>&amp;</td></svg>\u202eevil\u2066\n\x1b[31m{{7*7}}{% raw %}"
    "\u05e9\u05dc\u05d5\u05dd" + "x" * 10_000
)


class Pages:
    """Pages of one database, as a browser gets them."""

    def __init__(self, db: Path, *, allows_actions: bool = False) -> None:
        self.db = db
        self.site = Site(
            str(db), allows_actions=allows_actions, use_cases=("case.py:Own",), now=lambda: NOW
        )

    def get(self, address: str) -> Page:
        """Give the page of an address without its query, or with ``?name=value``."""
        path, _, query = address.partition("?")
        parts = path.split("/")
        numbers = dict.fromkeys(["id"], next((int(p) for p in parts if p.isdecimal()), 0))
        route = "/".join("{id}" if part.isdecimal() else part for part in parts)
        values = parse_qs(query, keep_blank_values=True)
        return self.site.show(route, PageRequest(path=path, numbers=numbers, query=values))

    def addresses(self) -> list[str]:
        """Give an address of every page."""
        return [path.replace("{id}", "1") for path in self.site.paths]


def _filled(folder: Path, lab: Lab) -> Path:
    db = folder / "planner.db"
    fill(db, lab)
    return db


@pytest.fixture(scope="session")
def lab_db(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _filled(tmp_path_factory.mktemp("lab"), SMALL)


@pytest.fixture(scope="session")
def hostile_db(tmp_path_factory: pytest.TempPathFactory) -> Path:
    hostile = Lab(machines=3, studies=2, trials=30, plans=4, trainings=4, jobs=6, text=HOSTILE)
    return _filled(tmp_path_factory.mktemp("hostile"), hostile)


@pytest.fixture(params=[False, True], ids=["read-only", "with-actions"])
def pages(lab_db: Path, request: pytest.FixtureRequest) -> Pages:
    return Pages(lab_db, allows_actions=request.param)


@pytest.fixture
def hostile_pages(hostile_db: Path) -> Pages:
    return Pages(hostile_db, allows_actions=True)
