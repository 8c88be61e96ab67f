"""Foreground: a program of the user's that has the terminal, and the signals that are for it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from launch.scripts.environment import ScriptStart
from launch.system.process_end import die_with_parent, kill_group
from planner.scripts.passed_signals import passing_on
from planner.scripts.terminal import lend_terminal

_FROM_TERMINAL = (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)


def run_in_foreground(start: ScriptStart, *, keeps_stdout: bool = False) -> int:
    """Run a program to its end; give its exit code, below 0 where a signal has ended it.

    It has a process group of its own, as a shell gives it, and the terminal where this process has
    that. Signals that come here are passed on to all of the group.

    Args:
        start: What runs, and with what around it.
        keeps_stdout: Send its stdout to stderr.

    Raises:
        OSError: It cannot be started.
    """
    owner = os.getpid()

    def prepare() -> None:  # in the program's process, before it becomes the program
        die_with_parent(owner, signal.SIGTERM)
        if start.cores:
            os.sched_setaffinity(0, start.cores)

    groups: list[int] = []

    def pass_on(number: int) -> None:
        for group in groups:
            kill_group(group, number)

    with passing_on(pass_on):
        child = subprocess.Popen(
            start.started_command,
            env={**os.environ, **start.started_environment},
            stdout=sys.stderr.fileno() if keeps_stdout else None,
            process_group=0,
            preexec_fn=prepare,
        )
        groups.append(child.pid)
        try:
            return _wait(child)
        finally:
            if child.poll() is None:
                kill_group(child.pid)
                child.wait()


def _wait(child: subprocess.Popen[bytes]) -> int:
    """Wait for its end; where the terminal stops it, as by Ctrl-Z, this stops too."""
    while True:
        with lend_terminal(child.pid):
            status = os.waitpid(child.pid, os.WUNTRACED)[1]
        if not os.WIFSTOPPED(status):
            child.returncode = os.waitstatus_to_exitcode(status)
            return child.returncode
        if os.WSTOPSIG(status) in _FROM_TERMINAL:
            os.killpg(os.getpgrp(), signal.SIGSTOP)
            os.killpg(child.pid, signal.SIGCONT)
