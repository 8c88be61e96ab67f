"""A launched script has the signals that come to its launch, but for those that nobody meant."""

from __future__ import annotations

import signal

import pytest

from launch.scripts.environment import ScriptStart
from planner.scripts.foreground import run_in_foreground


@pytest.mark.parametrize(
    ("usual", "rest_s", "code"),
    [(signal.SIG_IGN, 0.2, 0), (signal.SIG_DFL, 60, -signal.SIGHUP)],
)
def test_script_under_nohup_goes_on_when_the_terminal_closes(usual, rest_s, code):
    """The story: ddlplan took the signal for itself again, and passed it on to the script."""
    words = ("sh", "-c", f"sleep 0.1; kill -HUP $PPID; sleep {rest_s}")
    before = signal.signal(signal.SIGHUP, usual)
    try:
        assert run_in_foreground(ScriptStart(command=words, started_command=words)) == code
    finally:
        signal.signal(signal.SIGHUP, before)
