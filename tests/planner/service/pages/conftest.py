"""Databases for tests of pages: of a small lab, and of one whose every text is hostile."""

from __future__ import annotations

from pathlib import Path

import pytest
from imagined_lab import NOW, SMALL, Lab, fill
from markup import Pages

HOSTILE = (
    "<script>alert(1)</script>\"'>&amp;</td></svg>\u202eevil\u2066\n\x1b[31m{{7*7}}{% raw %}"
    "\u05e9\u05dc\u05d5\u05dd" + "x" * 10_000
)


def _filled(folder: Path, lab: Lab) -> Path:
    db = folder / "planner.db"
    fill(db, lab)
    return db


def _pages(db: Path, *, allows_actions: bool) -> Pages:
    return Pages(db, allows_actions=allows_actions, use_cases=("case.py:Own",), now=lambda: NOW)


@pytest.fixture(scope="session")
def lab_db(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _filled(tmp_path_factory.mktemp("lab"), SMALL)


@pytest.fixture(scope="session")
def hostile_db(tmp_path_factory: pytest.TempPathFactory) -> Path:
    hostile = Lab(machines=3, studies=2, trials=30, plans=4, trainings=4, jobs=6, text=HOSTILE)
    return _filled(tmp_path_factory.mktemp("hostile"), hostile)


@pytest.fixture(params=[False, True], ids=["read-only", "with-actions"])
def pages(lab_db: Path, request: pytest.FixtureRequest) -> Pages:
    return _pages(lab_db, allows_actions=request.param)


@pytest.fixture
def hostile_pages(hostile_db: Path) -> Pages:
    return _pages(hostile_db, allows_actions=True)
