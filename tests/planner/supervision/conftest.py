"""The queue of jobs of an empty database."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))

from machine_holder import machine_in_use
from supervision_queue import DB, Queue, another_process

from launch.system.process_identity import ProcessIdentity
from planner.store import Store


@pytest.fixture
def queue(ddlplan, monkeypatch) -> Iterator[Queue]:
    """The jobs of an empty database; all their processes end with the test."""
    monkeypatch.chdir(ddlplan.folder)
    monkeypatch.setenv("DDLPLAN_TEST_MARK", ddlplan.mark)
    with Store.open(DB) as store:
        yield Queue(store)
    ddlplan.wait_until_all_ended()


@pytest.fixture
def nothing_is_timed() -> Iterator[None]:
    """Hold up probes for the whole test."""
    with machine_in_use():
        yield


@pytest.fixture
def dead() -> ProcessIdentity | None:
    """A process that has ended."""
    with another_process() as identity:
        pass
    return identity
