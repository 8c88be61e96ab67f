"""A signal that ends a command ends it, wherever it is at that moment."""

from __future__ import annotations

import signal
import subprocess
import sys

PROGRAM = """
import os, signal, sys, time
import planner.__main__ as program

class Object:
    def __del__(self):  # where Python drops exceptions
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.001)

def call(arguments):
    found = Object()
    del found
    print("goes on", flush=True)
    time.sleep(30)
    return 0

program.call = call
sys.argv = ["ddlplan", "launch"]
program.main()
"""


def test_a_signal_within_a_callback_of_python_is_not_lost():
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.stdout == "goes on\n"
    assert ended.returncode == 128 + signal.SIGTERM
    assert ended.stderr == "ended by SIGTERM\n"
