"""A launched script has the signals that come to its launch, but for those that nobody meant."""

from __future__ import annotations

import os
import signal

import pytest

from launch.scripts.environment import ScriptStart
from planner.scripts.foreground import run_in_foreground


@pytest.mark.parametrize(
    ("usual", "times", "code"),
    [(signal.SIG_IGN, 2, 0), (signal.SIG_DFL, 600, -signal.SIGHUP)],
)
def test_script_under_nohup_goes_on_when_the_terminal_closes(usual, times, code):
    """The story: ddlplan took the signal for itself again, and passed it on to the script.

    The first one may come before the script is known to run.
    """
    words = ("sh", "-c", f"for _ in $(seq {times}); do kill -HUP $PPID; sleep 0.1; done")
    before = signal.signal(signal.SIGHUP, usual)
    try:
        assert run_in_foreground(ScriptStart(command=words, started_command=words)) == code
    finally:
        signal.signal(signal.SIGHUP, before)


def test_signal_that_a_program_of_another_user_does_not_take_ends_no_launch(monkeypatch):
    """The story: SIGTERM for `launch -- sudo ...` was an error, and the script ran on alone."""
    send = os.killpg

    def refuse(group, number):
        if number == signal.SIGTERM:
            raise PermissionError
        send(group, number)

    monkeypatch.setattr(os, "killpg", refuse)
    words = ("sh", "-c", "for _ in 1 2 3; do kill -TERM $PPID; sleep 0.1; done; exit 3")
    assert run_in_foreground(ScriptStart(command=words, started_command=words)) == 3
