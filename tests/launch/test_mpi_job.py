"""What an mpirun writes to stderr while it is listened to, waited for, and stopped."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from launch.mpi.job import MpiJob
from launch.workers.log import read_tail

MOST_BYTES = 8 * 2**20
LINES = 400_000
FLOOD = f"import sys\nfor i in range({LINES}): print(i, 'x' * 60, file=sys.stderr)\n"
"""More than a log may hold, and far more than a pipe does."""


@pytest.fixture
def log(tmp_path) -> Path:
    return tmp_path / "mpirun.log"


def job_of(program: str, log: Path) -> MpiJob:
    return MpiJob([sys.executable, "-c", program], log)


@pytest.mark.parametrize("listens", [True, False])
def test_log_is_bounded_and_keeps_its_first_and_its_last_words(log, listens):
    with job_of(FLOOD, log) as job:
        if listens:
            assert list(job.reports()) == []
        assert job.wait() == 0
        assert log.stat().st_size <= MOST_BYTES
        assert log.read_bytes().startswith(b"0 xxx")
        assert read_tail(log, 1).startswith(f"{LINES - 1} xxx")
    assert log.stat().st_mode & 0o777 == 0o600


def test_what_is_written_on_the_way_out_is_kept(log):
    program = (
        "import signal, sys, time\n"
        "def leave(*_): sys.exit('the last word')\n"
        "signal.signal(signal.SIGTERM, leave)\n"
        "print('first', file=sys.stderr, flush=True)\n"
        "time.sleep(100)\n"
    )
    with job_of(program, log) as job:
        while "first" not in log.read_text():
            job.next_report(0.1)
        job.stop()
        assert log.read_text() == "first\nthe last word\n"
        assert job.wait() == 1


def test_errors_without_end_keep_nobody_from_looking_elsewhere(log):
    program = "import sys\nwhile True: print('x' * 60, file=sys.stderr)\n"
    with job_of(program, log) as job:
        assert job.next_report(0.1) is None
        assert not job.is_over


def test_job_ends_though_what_it_left_holds_its_outputs_open(log):
    program = "import subprocess, sys\nsubprocess.Popen(['sleep', '100'])\nsys.exit('gone')\n"
    with job_of(program, log) as job:
        before = time.monotonic()
        assert list(job.reports()) == []
        assert job.wait() == 1
        assert time.monotonic() - before < 60
    assert log.read_text() == "gone\n"
