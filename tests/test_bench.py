"""Benches leave the user's environment alone, and a day with a GPU keeps what its parts say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

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


RUNS_PART = """
import argparse, json, os, sys, gpu_day
gpu_day.__file__ = sys.argv[1]
os.environ["GPU_DAY_BEGAN_S"] = "0"
day = gpu_day.Day(argparse.Namespace(time=None))
print(json.dumps(day._run(gpu_day.Part("one", 60.0), float(sys.argv[2]))))
"""
RUNS_TESTS = """
import json, sys
from pathlib import Path
from _gpu_tests import run_gpu_tests
found = run_gpu_tests(float(sys.argv[2]), Path(sys.argv[1]))
print(json.dumps({**found, "results": [one.value for one in found["results"]]}))
"""
FEW_TESTS = """
import os, signal, time
import pytest

@pytest.mark.gpu
def test_passes():
    pass

@pytest.fixture
def kept():
    yield
    assert "left" == "nothing"

@pytest.mark.gpu
def test_fails(kept):
    assert "found" == "expected"

@pytest.mark.gpu
def test_hangs():
    if INTERRUPTS:
        os.kill(os.getpid(), signal.SIGINT)
    time.sleep(600)

@pytest.mark.gpu
def test_has_no_turn():
    pass
"""


def said_by(program: str, *arguments: object) -> dict[str, Any]:
    """Run a program in the folder of benches, and read the JSON of its last line."""
    ended = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        cwd=BENCH,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    said: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return said


def test_a_part_of_the_day_that_hangs_is_said_to_have_had_no_end(tmp_path):
    """The story: its error was the exit code of the signal that had ended it."""
    part = tmp_path / "part.py"
    part.write_text("import time\ntime.sleep(600)\n")
    found = said_by(RUNS_PART, part, 0.6)
    assert found == {"state": "failed", "error": "no end within 1 s"}


def test_a_part_of_the_day_is_told_its_time_and_what_a_library_says_last_is_left_out(tmp_path):
    part = tmp_path / "part.py"
    part.write_text(
        "import json, sys\nprint(json.dumps({'told': sys.argv[-2:]}))\nprint('and good bye')\n"
    )
    assert said_by(RUNS_PART, part, 60) == {"state": "done", "told": ["--limit", "60.0"]}


@pytest.mark.parametrize(
    ("interrupts", "limit_s"),
    [(True, 600), pytest.param(False, 25, marks=pytest.mark.long)],
    ids=["interrupted", "late"],
)
def test_what_tests_for_a_gpu_have_shown_is_kept_whatever_comes_then(interrupts, limit_s, tmp_path):
    """The story: where one hung, or a library was missing, nothing was known of the others."""
    (tmp_path / "test_few.py").write_text(f"INTERRUPTS = {interrupts}\n{FEW_TESTS}")
    (tmp_path / "test_unread.py").write_text("import not_there  # pytest.mark.gpu\n")
    found = said_by(RUNS_TESTS, tmp_path, limit_s)
    assert found["results"] == [1, 2, 0]
    assert found["state"] == "failed"
    assert found["error"] == "exit code 2 of pytest: 2 of 3 tests failed"
    (unread, why), (failed, text) = found["failed"].items()
    assert unread.endswith("test_unread")
    assert "No module named 'not_there'" in why
    assert failed.endswith("test_few.test_fails")
    assert "'found' == 'expected'" in text
    assert "'left' == 'nothing'" in text
