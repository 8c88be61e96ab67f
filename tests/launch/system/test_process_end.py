"""A process that is bound to its parent ends with it, whatever it was forked with."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

ORPHAN = """
import os, signal, sys
from launch.system.process_end import die_with_parent
signal.signal(signal.SIGTERM, eval(sys.argv[1]))
die_with_parent(os.getppid() + 1, signal.SIGTERM)
print("it goes on")
"""


@pytest.mark.parametrize("handler", ["lambda *_: None", "signal.SIG_IGN"])
def test_a_handler_from_before_the_fork_does_not_keep_what_has_lost_its_parent(handler):
    """A script went on without its launch where that was killed in the moment of the start."""
    ended = subprocess.run(
        [sys.executable, "-c", ORPHAN, handler],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (-signal.SIGTERM, "")
