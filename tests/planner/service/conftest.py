"""Fixtures of the HTTP service: servers with something of every kind to show."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path += [str(Path(__file__).parent), str(Path(__file__).parent / "pages")]

from filled_store import fill
from serving import Serving, serving, sign_in


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory, own_locks: Path) -> Iterator[Serving]:
    """A server that may start and end jobs. Starting takes a second: tests share it."""
    folder = tmp_path_factory.mktemp("server")
    fill(folder / "planner.db")
    with serving(folder, "--allow-actions") as started:
        yield started


@pytest.fixture(scope="module")
def showing(tmp_path_factory: pytest.TempPathFactory, own_locks: Path) -> Iterator[Serving]:
    """A server that only shows."""
    folder = tmp_path_factory.mktemp("showing")
    fill(folder / "planner.db")
    with serving(folder) as started:
        yield started


@pytest.fixture
def cookie(server: Serving) -> str:
    """A good cookie of the server, as a browser sends it."""
    return sign_in(server)
