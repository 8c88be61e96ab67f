"""A cache of the test's own, for those whose data others must not find."""

import pytest


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DDLPLAN_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"
