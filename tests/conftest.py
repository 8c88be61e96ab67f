"""What all tests share: caches of their own, and no settings of the user."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "launch"))


@pytest.fixture(autouse=True)
def _own_surroundings(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch):
    """Leave the user's cache and settings alone."""
    for name in os.environ:
        if name.startswith("DDLPLAN_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("DDLPLAN_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
