"""A cache of the test's own, for those whose data others must not find, and a listener."""

import pytest

from tests.launch.use_cases.heard import Heard


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DDLPLAN_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def report():
    return Heard()
