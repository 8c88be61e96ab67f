"""Threads of a worker wait for work as its plan says."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from launch.errors import InvalidPlanError
from launch.plan import Plan
from launch.scripts.environment import plain_script_environment
from launch.strategies import load_strategy
from launch.workers.fork_server_pool import ForkServerPool
from planner.plans.plain_commands import plain_environment

PASSIVE = Plan(
    strategy="threads", node_batch=8, threads_per_process=2, options={"wait_policy": "passive"}
)


def environment_of(pid):
    """Environment of a process, once it has it: before its program is loaded it reads as empty."""
    while not (environment := Path(f"/proc/{pid}/environ").read_bytes()):
        time.sleep(0.01)
    return environment.split(b"\0")


def test_processes_start_with_it_as_a_library_reads_it_when_it_is_loaded(monkeypatch):
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")  # the user's own, where a plan has none
    with ForkServerPool() as servers:
        passive = servers.get(PASSIVE)
        assert passive is servers.get(PASSIVE) is not servers.get()
        for server, policy in ((passive, "PASSIVE"), (servers.get(), "ACTIVE")):
            assert f"OMP_WAIT_POLICY={policy}".encode() in environment_of(server.pid)


@pytest.mark.parametrize("environment", [plain_environment, plain_script_environment])
def test_a_program_without_ddlplan_starts_with_it_too(environment):
    assert environment(PASSIVE)["OMP_WAIT_POLICY"] == "PASSIVE"
    assert "OMP_WAIT_POLICY" not in environment(
        Plan(strategy="threads", node_batch=8, threads_per_process=2)
    )


@pytest.mark.parametrize(
    ("strategy", "options", "message"),
    [
        ("threads", {"wait_policy": "asleep"}, "choose one of default, active, passive"),
        ("threads", {"waiting": "passive"}, "options waiting: use wait_policy"),
        ("sequential", {"wait_policy": "passive"}, "options wait_policy: it has none"),
    ],
)
def test_an_option_that_means_nothing_is_refused(strategy, options, message):
    with pytest.raises(InvalidPlanError, match=message):
        load_strategy(strategy).check(Plan(strategy=strategy, node_batch=8, options=options))
