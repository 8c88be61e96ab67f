"""Runs the ranks of an MPI program, all of them on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from launch.mpi.mpirun import find_mpirun
from launch.mpi.scratch_folder import with_files_in
from launch.system.temporary_folder import TemporaryFolder

ROOT = Path(__file__).parents[3]
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def run_ranks(
    count: int,
    program: Sequence[str],
    *,
    options: Sequence[str] = (),
    timeout_s: float = 240,
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; its exit code is the caller's business.

    Args:
        count: Of ranks.
        program: As ``python -m mpi4py`` takes it.
        options: Of mpirun.
        timeout_s: After which it is ended.
    """
    command = [
        *(find_mpirun(), "--host", f"localhost:{count}", "-n", str(count), "--bind-to", "none"),
        *(*options, sys.executable, "-m", "mpi4py", *program),
    ]
    with TemporaryFolder() as scratch:
        return subprocess.run(
            with_files_in(scratch, command, os.environ),
            cwd=ROOT,
            env=os.environ | AS_ROOT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )


def said_by(count: int, program: str) -> list[str]:
    """Run the text of a program, which must end well; give the lines that its ranks wrote."""
    ended = run_ranks(count, ["-c", program])
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()
