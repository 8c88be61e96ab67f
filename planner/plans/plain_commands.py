"""Plain commands: a plan's layout as command lines that need no ddlplan."""

from __future__ import annotations

from launch.plan import Plan


def plain_commands(plan: Plan) -> dict[str, str]:
    """Give command lines that start a script of one's own in the layout of a plan.

    They set processes, threads and devices. Batch and memory format are the script's to set.
    """
    per_process = plan.threads_per_process
    script = "YOUR_SCRIPT.py"
    mpirun = [
        *("mpirun", "-n", str(plan.processes), "--bind-to", "core"),
        *("--map-by", f"slot:PE={per_process}", "-x", f"OMP_NUM_THREADS={per_process}"),
    ]
    return {
        "torchrun": f"OMP_NUM_THREADS={per_process} torchrun --standalone "
        f"--nproc-per-node={plan.processes} {script}",
        "mpirun": f"{' '.join(mpirun)} python {script}",
    }
