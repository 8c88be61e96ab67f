"""Tests that need a GPU, run in a limited time: how many passed, and all that failed ones say."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from threading import Timer
from typing import Any
from xml.etree import ElementTree

from _block import BenchError, Result

_ROOT = Path(__file__).parents[1]

_TEST_LIMIT_S = 150
"""Of a test, so that one that hangs leaves time for the others."""

_END_S = 15.0
"""For pytest to end the test that runs, and to write what it has found."""


def run_gpu_tests(limit_s: float, tests: Path = _ROOT / "tests") -> dict[str, Any]:
    """Run the tests that need a GPU; give figures, and the whole text of each that failed.

    Other files of tests are not even read: they import libraries that a machine may lack, and add
    to the jobs of several nodes that are trained at once.

    Args:
        limit_s: Time for all of them. Where it is too short, those that had their turn are given.
        tests: Folder of all tests.

    Raises:
        BenchError: pytest wrote no report.
    """
    files = [str(f) for f in tests.rglob("test_*.py") if "mark.gpu" in f.read_text()]
    with tempfile.TemporaryDirectory(prefix="ddlplan-bench-") as folder:
        report = Path(folder, "report.xml")
        command = [sys.executable, "-m", "pytest", "-m", "gpu", "--junitxml", str(report)]
        # A file that cannot be imported leaves the tests of the others.
        command += ["--continue-on-collection-errors", "-o", f"timeout={_TEST_LIMIT_S}"]
        command += sorted(files)
        with subprocess.Popen(command, cwd=_ROOT, stdout=sys.stderr) as running:
            # Interrupted it writes its report, and killed with this process it would not.
            timer = Timer(limit_s - _END_S, running.send_signal, [signal.SIGINT])
            timer.start()
            try:
                status = running.wait()
            finally:
                timer.cancel()
        if not report.exists():
            raise BenchError(f"exit code {status} of {' '.join(command)}")
        every = ElementTree.parse(report).iter("testcase")
        cases = [case for case in every if case.get("name")]  # one that was interrupted has none
    return _judge(cases, status)


def _judge(cases: list[ElementTree.Element], status: int) -> dict[str, Any]:
    faults: dict[str, str] = {}
    times_s: dict[str, float] = {}
    for case in cases:  # one that has failed, and whose fixture fails after it, is there twice
        name = f"{case.get('classname')}.{case.get('name')}"
        times_s[name] = times_s.get(name, 0.0) + float(case.get("time", 0))
        for fault in (*case.findall("failure"), *case.findall("error")):
            before = f"{faults[name]}\n" if name in faults else ""
            faults[name] = before + (fault.text or fault.get("message") or "")
    skips = Counter(skip.get("message", "") for case in cases for skip in case.findall("skipped"))
    passed = [
        case
        for case in cases
        if all(case.find(kind) is None for kind in ("failure", "error", "skipped"))
    ]
    found: dict[str, Any] = {
        "results": [
            Result("tests that passed", len(passed)),
            Result("tests that failed", len(faults)),
            Result("tests that were skipped", skips.total()),
        ],
        "failed": faults,
        "skipped": skips,
        "test_s": times_s,
    }
    if status:
        found["state"] = "failed"
        said = f"{len(faults)} of {len(times_s)} tests failed"
        found["error"] = f"exit code {status} of pytest: {said}"
    return found
