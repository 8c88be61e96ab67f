"""What signals do to `launch` while it runs no job."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from launch.workload import Workload
from planner.commands.launch import launch
from planner.commands.signals import cancel_on_signals
from planner.jobs.hosts import Hosts
from planner.jobs.launch_request import LaunchRequest
from planner.report.output import Output


@pytest.fixture
def taken() -> Iterator[list[int]]:
    """Signals that have had the effect that they would have had before."""
    found: list[int] = []
    usual = signal.signal(signal.SIGUSR1, lambda number, _: found.append(number))
    yield found
    signal.signal(signal.SIGUSR1, usual)


def test_launch_that_runs_no_job_yet_is_not_ended_by_a_request_for_a_checkpoint(taken, monkeypatch):
    """The story: Slurm's signal came while the hosts were checked, and killed the command."""

    def check_hosts(*_: object, **__: object) -> None:
        signal.raise_signal(signal.SIGUSR1)

    monkeypatch.setattr("planner.commands.launch.prepare_launch", check_hosts)
    monkeypatch.setattr("planner.commands.launch._show_dry_run", check_hosts)
    launch(
        LaunchRequest(workload=Workload(use_case="tiny")),
        Hosts.this_machine(),
        "db",
        Output("launch", as_json=False),
        dry_run=True,
    )
    assert taken == []
    signal.raise_signal(signal.SIGUSR1)
    assert taken == [signal.SIGUSR1]


def test_children_do_not_inherit_what_a_command_does_with_signals():
    program = "import signal; print(signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL)"
    with cancel_on_signals(print):
        ended = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert ended.stdout == b"True\n"
