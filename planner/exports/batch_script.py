"""Batch script of a plan, for Slurm: the plan's processes as ranks of srun, or ddlplan itself."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from planner.exports.head import head_lines
from planner.exports.shell_script import exports, notes, script_settings
from planner.plans.plain_commands import plain_environment
from planner.plans.stored_plan import StoredPlan
from planner.quantities import printable


def batch_script(stored: StoredPlan, stale_reasons: Sequence[str]) -> str:
    """Give a script for ``sbatch``.

    With a script of one's own as its argument srun starts the processes of the plan, which find in
    their environment what torchrun would give them. Without one, ``ddlplan launch`` trains the use
    case by the plan, one rank for each node. No ``--hint`` and no ``--threads-per-core``: srun
    would take them for steps of ddlplan too, and give them a part of the cores.
    """
    plan = stored.plan
    use_case = shlex.quote(printable(stored.use_case))
    lines = [
        "#!/bin/bash",
        *(f"# {line}" for line in head_lines(stored, stale_reasons)),
        "# Submit it where the environment of PyTorch is active:",
        "#   sbatch plan.sbatch YOUR_SCRIPT.py ARGUMENTS   srun starts your script; no ddlplan",
        "#   sbatch plan.sbatch                            ddlplan launch trains the use case",
        "# --nodes=N before plan.sbatch takes more nodes of this hardware.",
        *notes(plan),
        *sbatch_options(stored, tasks=plan.processes, cores_per_task=plan.threads_per_process),
        "set -eu",
        'if [ "$#" -eq 0 ]; then',
        "\t# A rank of ddlplan takes all cores of its node; srun before 22.05 would give it these.",
        "\tunset SLURM_CPUS_PER_TASK",
        "\t# The database is planner.db of this folder; DDLPLAN_DB names another one.",
        f"\texec ddlplan launch --use-case {use_case} --plan {stored.id}",
        "fi",
        *exports(plain_environment(plan)),
        *exports(script_settings(plan)),
        'MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
        "export MASTER_ADDR",
        "export MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))",
        f"export WORLD_SIZE=$((SLURM_JOB_NUM_NODES * {plan.processes}))",
        f"export LOCAL_WORLD_SIZE={plan.processes}",
        f'exec srun --ntasks="$WORLD_SIZE" --ntasks-per-node={plan.processes} \\',
        f"\t--cpus-per-task={plan.threads_per_process} --cpu-bind=cores "
        "--kill-on-bad-exit=1 --export=ALL \\",
        '\tbash -c \'RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID exec python "$@"\' python "$@"',
    ]
    return "\n".join(lines) + "\n"


def sbatch_options(stored: StoredPlan, *, tasks: int, cores_per_task: int) -> Iterator[str]:
    """Give the options of a job on one whole node, as the plan was measured."""
    yield f"#SBATCH --job-name=plan-{stored.id}"
    yield "#SBATCH --nodes=1"
    yield f"#SBATCH --ntasks-per-node={tasks}"
    yield f"#SBATCH --cpus-per-task={cores_per_task}"
    if gpus := stored.plan.gpus:
        yield f"#SBATCH --gres=gpu:{len(gpus)}"
    yield "#SBATCH --exclusive"
    yield "#SBATCH --mem=0"
    yield "#SBATCH --time=04:00:00"
