"""A signal that ends a command ends it, wherever it is at that moment."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

PROGRAM = """
import atexit, ctypes, os, signal, sys, time
import planner.__main__ as program
from planner.errors import CancelledError

def get_signal():
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(0.001)

class Object:
    def __del__(self):  # where Python drops exceptions
        get_signal()

class Asked:
    @property
    def attribute(self):
        get_signal()

def drop_in_python():
    found = Object()
    del found

def drop_in_c():  # as libraries do that ask whether there is an attribute
    ctypes.pythonapi.PyObject_HasAttrString(ctypes.py_object(Asked()), b"attribute")

def call(arguments):
    {how}
    print("goes on", flush=True)
    time.sleep(30)
    return 0

program.call = call
sys.argv = ["ddlplan", "launch"]
program.main()
"""

END = """
try:
        get_signal()
    finally:
        time.sleep(0.8)  # longer than it takes until a lost signal is raised again
        print("all is ended", flush=True)
"""

OTHER_EXCEPTION = """
try:
        get_signal()
    except BaseException as ended:
        atexit.register(lambda: (time.sleep(0.8), print("at exit", flush=True)))
        raise CancelledError(signal.SIGTERM) from ended
"""


def assert_ended(how: str, said: str) -> None:
    program = [sys.executable, "-c", PROGRAM.format(how=how.strip())]
    ended = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
    assert ended.stdout == said
    assert ended.returncode == 128 + signal.SIGTERM
    assert ended.stderr == "ended by SIGTERM\n"


@pytest.mark.parametrize("how", ["drop_in_python()", "drop_in_c()"])
def test_a_signal_whose_exception_is_dropped_is_not_lost(how):
    assert_ended(how, "goes on\n")


def test_a_signal_does_not_disturb_what_is_ended_because_of_it():
    assert_ended(END, "all is ended\n")


def test_a_signal_that_has_ended_the_command_is_not_raised_while_the_program_leaves():
    assert_ended(OTHER_EXCEPTION, "at exit\n")
