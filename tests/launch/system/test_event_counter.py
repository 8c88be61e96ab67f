"""Waiting for an event counter goes on after signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

PROGRAM = """
import os, signal, sys
from launch.system.event_counter import await_events
signal.signal(signal.SIGUSR1, lambda *_: print("handled", flush=True))
print("waiting", flush=True)
print(await_events(int(sys.argv[1])), flush=True)
"""


def test_a_signal_that_is_handled_ends_no_waiting_for_events():
    """A worker that waited for others died of InterruptedError when it was stopped and went on."""
    counter = os.eventfd(0)
    waiting = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(counter)],
        stdout=subprocess.PIPE,
        text=True,
        pass_fds=[counter],
    )
    assert waiting.stdout is not None
    assert waiting.stdout.readline() == "waiting\n"
    waiting.send_signal(signal.SIGUSR1)
    assert waiting.stdout.readline() == "handled\n"
    waiting.send_signal(signal.SIGSTOP)
    waiting.send_signal(signal.SIGCONT)
    os.eventfd_write(counter, 3)
    assert waiting.stdout.readline() == "3\n"
    assert waiting.wait() == 0
    waiting.stdout.close()
    os.close(counter)
