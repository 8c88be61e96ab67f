"""Stand-in of Slurm on this machine: sbatch runs a batch script here, srun starts its ranks.

Options that it does not know are errors, so that a misspelt one is found.
"""

from __future__ import annotations

import argparse
import os
import re
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

_JOB_ID = "4711"


def install(folder: Path) -> None:
    """Put sbatch, srun and scontrol into a folder for ``PATH``."""
    folder.mkdir()
    for name in ("sbatch", "srun", "scontrol"):
        program = folder / name
        program.write_text(f'#!/bin/sh\nexec {sys.executable} {__file__} {name} "$@"\n')
        program.chmod(0o755)


def sbatch(arguments: Sequence[str]) -> int:
    """Run a batch script at once; options before its name win over those in it."""
    parser = _parser()
    parser.add_argument("command", nargs=argparse.REMAINDER)
    given = parser.parse_args(arguments)
    script, *rest = given.command
    head = re.match(r"(?:#.*\n)+", Path(script).read_text())[0]
    inside = re.findall(r"^#SBATCH (\S+)", head, re.MULTILINE)
    options = parser.parse_args([*inside, *arguments])
    nodes, per_node = int(options.nodes or 1), int(options.ntasks_per_node or 1)
    if nodes != 1:
        parser.error("this stand-in has one node")
    cpus = int(options.cpus_per_task or 1)
    node_cores = len(os.sched_getaffinity(0))
    variables = {
        "SLURM_JOB_ID": _JOB_ID,
        "SLURM_JOB_NODELIST": socket.gethostname(),
        "SLURM_JOB_NUM_NODES": str(nodes),
        "SLURM_NTASKS_PER_NODE": str(per_node),
        "SLURM_CPUS_PER_TASK": str(cpus),
        "SLURM_CPUS_ON_NODE": str(node_cores if options.exclusive else cpus * per_node),
    }
    return subprocess.run([script, *rest], env={**os.environ, **variables}).returncode


def srun(arguments: Sequence[str]) -> int:
    """Start the ranks, each on cores of its own where that is asked for, and end with the worst."""
    parser = _parser()
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args(arguments)
    ranks, cpus = int(options.ntasks or 1), int(options.cpus_per_task or 1)
    cores = sorted(os.sched_getaffinity(0))
    pins = options.cpu_bind == "cores" and len(cores) >= ranks * cpus
    started = []
    for rank in range(ranks):
        own = cores[rank * cpus : (rank + 1) * cpus] if pins else cores
        variables = {
            "SLURM_PROCID": str(rank),
            "SLURM_LOCALID": str(rank),
            "SLURM_NTASKS": str(ranks),
        }
        taskset = ["taskset", "--cpu-list", ",".join(map(str, own))]
        started.append(
            subprocess.Popen([*taskset, *options.command], env={**os.environ, **variables})
        )
    return max(process.wait() for process in started)


def scontrol(arguments: Sequence[str]) -> int:
    """Print the nodes of a list, one a line."""
    if list(arguments[:2]) != ["show", "hostnames"]:
        return 2
    sys.stdout.write(f"{arguments[2]}\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for option in (
        *("--nodes", "--ntasks", "--ntasks-per-node", "--cpus-per-task", "--gres", "--mem"),
        *("--time", "--job-name", "--output", "--nodelist", "--distribution", "--mpi"),
        *("--cpu-bind", "--kill-on-bad-exit", "--export"),
    ):
        parser.add_argument(option)
    parser.add_argument("--exclusive", action="store_true")
    parser.add_argument("--overlap", action="store_true")
    return parser


if __name__ == "__main__":
    _, called, *words = sys.argv
    sys.exit({"sbatch": sbatch, "srun": srun, "scontrol": scontrol}[called](words))
