"""What an mpirun writes to stderr while it is listened to, waited for, and stopped."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from pathlib import Path

import pytest
from ranks_here import AS_ROOT

from launch.mpi.job import MpiJob
from launch.mpi.mpirun import find_mpirun
from launch.mpi.scratch_folder import with_files_in
from launch.workers.log import read_tail

MOST_BYTES = 8 * 2**20
LINES = 200_000
FLOOD = f"import sys\nfor i in range({LINES}): print(i, 'x' * 60, file=sys.stderr)\n"
"""More than a log may hold, and far more than a pipe does."""


@pytest.fixture
def log(tmp_path) -> Path:
    return tmp_path / "mpirun.log"


def job_of(program: str, log: Path) -> MpiJob:
    return MpiJob([sys.executable, "-c", program], log)


def read_to_the_end(job: MpiJob) -> None:
    while not job.is_over:
        assert job.next_report(1.0) is None


@pytest.mark.parametrize("listens", [True, False])
def test_log_is_bounded_and_keeps_its_first_and_its_last_words(log, listens):
    with job_of(FLOOD, log) as job:
        if listens:
            read_to_the_end(job)
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
        while "first\n" not in log.read_text():
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
        read_to_the_end(job)
        assert job.wait() == 1
        assert time.monotonic() - before < 60
    assert log.read_text() == "gone\n"


def test_what_a_killed_mpirun_leaves_is_cleared_away(log, tmp_path, monkeypatch):
    """The story: a later mpirun of the same process number found it, and ended with 213."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    monkeypatch.setenv("TMPDIR", str(scratch))
    for name, value in AS_ROOT.items():
        monkeypatch.setenv(name, value)
    with MpiJob([find_mpirun(), "-n", "1", "sleep", "100"], log) as job:
        while not (files := list(scratch.glob("*/ompi.*/*.tool.*[0-9]"))):
            job.next_report(0.05)
        os.kill(int(files[0].parent.suffix[1:]), signal.SIGKILL)
        assert job.wait() == -signal.SIGKILL
        assert files[0].exists()
    assert list(scratch.iterdir()) == []


def test_place_that_the_user_chose_for_files_of_mpirun_is_kept(tmp_path):
    chosen = {"PRTE_MCA_prte_tmpdir_base": str(tmp_path)}
    command = with_files_in(Path("/scratch"), ["mpirun"], chosen)
    assert not [word for word in command if "prte" in word]


def test_an_impatient_ctrl_c_leaves_nothing_behind(log, tmp_path, monkeypatch):
    """The story: it ended the clean-up, and mpirun, its logins and its folder stayed."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    monkeypatch.setattr("launch.mpi.job._END_LIMIT_S", 2.0)
    program = (
        "import os, signal, time\n"
        "def hurry(*_): os.kill(os.getppid(), signal.SIGINT)\n"
        "signal.signal(signal.SIGTERM, hurry)\n"
        "print(os.getpid(), file=open('pid', 'w'), flush=True)\n"
        "while True: time.sleep(100)\n"
    )
    monkeypatch.chdir(tmp_path)
    with job_of(program, log) as job:
        while not (Path("pid").exists() and (pid := Path("pid").read_text())):
            job.next_report(0.05)
        with pytest.raises(KeyboardInterrupt):
            job.stop()
        assert not Path(f"/proc/{int(pid)}").exists()
        assert list(scratch.iterdir()) == []


def test_job_without_a_place_for_temporary_files_leaves_its_log_closed(log, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(log.parent / "missing"))
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(FileNotFoundError) as raised:
        MpiJob(["true"], log)
    assert len(list(Path("/proc/self/fd").iterdir())) == before, raised
