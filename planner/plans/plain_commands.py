"""Plain commands: a plan's layout as command lines that need no ddlplan."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from launch.plan import Plan
from launch.process_environment import allocators
from launch.process_environment.openmp import wait_environment, wait_policy
from planner.scripts.naming import shell_line

SCRIPT = "YOUR_SCRIPT.py"

_AS_TORCHRUN = {
    "RANK": "RANK",
    "WORLD_SIZE": "SIZE",
    "LOCAL_RANK": "LOCAL_RANK",
    "LOCAL_WORLD_SIZE": "LOCAL_SIZE",
}
"""What torchrun would set for gloo, and which of Open MPI's variables of a rank has it."""


def plain_commands(plan: Plan) -> dict[str, str]:
    """Give command lines that start a script of one's own in the layout of a plan.

    They set processes, threads and how these wait, the allocator, and what ``init_process_group``
    reads. Batch and memory format are the script's to set.
    """
    variables = plain_environment(plan)
    return {
        "torchrun": f"{shell_line(variables)} {torchrun_command(plan)} {SCRIPT}",
        "mpirun": f"{_mpirun_command(plan, variables)} {SCRIPT}",
    }


def plain_environment(plan: Plan) -> dict[str, str]:
    """Give the variables with which the processes of a plan start.

    None names GPUs: the numbers of the plan were CUDA's when it was measured.
    """
    return {
        "OMP_NUM_THREADS": str(plan.threads_per_process),
        **wait_environment(wait_policy(plan)),
        **allocators.plain_environment(plan.allocator),
    }


def torchrun_command(plan: Plan) -> str:
    """Give the command that starts the processes of a plan, without their script."""
    return f"torchrun --standalone --nproc-per-node={plan.processes}"


def _mpirun_command(plan: Plan, variables: Mapping[str, str]) -> str:
    pinned = ["--bind-to", "core", "--map-by", f"slot:PE={plan.threads_per_process}"]
    given = {**variables, "MASTER_ADDR": "127.0.0.1"}
    passed = [word for item in given.items() for word in ("-x", "=".join(item))]
    ranks = " ".join(f"{ours}=$OMPI_COMM_WORLD_{theirs}" for ours, theirs in _AS_TORCHRUN.items())
    port = "MASTER_PORT=${MASTER_PORT:-29500}"  # two jobs on a host need different ones
    start = ["sh", "-c", f'{ranks} {port} exec python "$@"', "sh"]
    return shlex.join(["mpirun", "-n", str(plan.processes), *pinned, *passed, *start])
