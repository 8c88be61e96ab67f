"""Benches leave the user's environment as it is, but for what they measure."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

BENCH = Path(__file__).parents[1] / "bench"
SHOWS_PATH = """
import os, sys, usage
usage._turn = lambda _: sys.exit(os.environ["PYTHONPATH"])
usage._in_turns()
"""


def test_trainings_of_a_bench_find_what_the_user_has_on_the_path():
    """The story: ddlplan was on PYTHONPATH alone, and bench/usage.py took it from its ranks."""
    ended = subprocess.run(
        [sys.executable, "-c", SHOWS_PATH],
        cwd=BENCH,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(BENCH.parent), "/of/the/user"])},
        capture_output=True,
        text=True,
        check=False,
    )
    paths = ended.stderr.strip().rpartition("\n")[2].split(os.pathsep)
    assert str(BENCH) in paths, ended.stderr
    assert paths[-2:] == [str(BENCH.parent), "/of/the/user"]
