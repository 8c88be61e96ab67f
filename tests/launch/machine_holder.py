"""Another process that has the machine's place for timing, or that of a training."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_HOLDER = """
import sys
from functools import partial
from launch.system.machine_lock import Occupant, timing_alone, training_noticed
what, command = sys.argv[1:]
say = partial(print, file=sys.stderr)
occupant = Occupant.of_this_process(command)
with (
    timing_alone(occupant, waits=True, on_wait=say, on_trouble=sys.exit)
    if what == "times"
    else training_noticed(occupant, sys.exit)
):
    print("has it", flush=True)
    sys.stdin.read()
"""


@contextmanager
def machine_in_use(
    what: str = "times", command: str = "ddlplan theirs"
) -> Iterator[subprocess.Popen[str]]:
    """Let another process time something, or train: one below which no command of a test runs."""
    environment = {**os.environ}
    environment.pop("DDLPLAN_TEST_MARK", None)  # it is none of a command's processes
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", _HOLDER, what, command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "has it\n"
        yield process
    finally:
        process.kill()
        process.communicate()
