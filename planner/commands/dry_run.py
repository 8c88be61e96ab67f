"""Dry run of ``ddlplan launch``: its commands, plans, cores and devices; nothing is started."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from launch.errors import InvalidPlanError
from launch.job import Job
from launch.plan import Plan
from launch.process_environment.allocators import allocator_environment
from launch.process_environment.openmp import wait_environment, wait_policy
from launch.system.run_directory import RunDirectory
from launch.workers.fork_server import WORKER_SETTINGS, worker_environment
from launch.workers.task import Purpose, Task, make_worker_tasks
from planner.jobs.placement import Placement
from planner.jobs.training import PROGRAM
from planner.report.plan_line import describe_plan
from planner.scripts.naming import shell_line
from probes import codec
from probes.hardware import Hardware


def describe_job(
    job: Job, nodes: Sequence[Hardware], environment: Mapping[str, str], placement: Placement
) -> dict[str, Any]:
    """Give what would be started on these nodes, by rank, as plain values that JSON can hold.

    Raises:
        InvalidPlanError: A plan's allocator is not there.
    """
    directory = RunDirectory(Path(job.run_directory))
    inherited = worker_environment(environment)
    return {
        "command": placement.command([PROGRAM, str(directory.job)], directory, environment),
        "nodes": [
            {
                "host": part.host,
                "plan": codec.to_builtins(part.plan),
                "workers": _workers(job, part.plan, node),
                "environment": {
                    **_allocator(part.plan.allocator, environment, placement),
                    **wait_environment(wait_policy(part.plan)),
                },
            }
            for part, node in zip(job.nodes, nodes, strict=True)
        ],
        "environment": {name: inherited[name] for name in sorted(WORKER_SETTINGS)},
        "environment_without": sorted(environment.keys() - inherited.keys()),
    }


def job_lines(job: Job, described: dict[str, Any], plan_ids: Sequence[int | None]) -> list[str]:
    """Give all but the command for people, with the numbers of the stored plans by rank."""
    lines = []
    for part, node, plan_id in zip(job.nodes, described["nodes"], plan_ids, strict=True):
        lines.append(f"{part.host}: plan {plan_id}, {describe_plan(part.plan)}")
        for worker in node["workers"]:
            cores = ",".join(map(str, worker["cores"])) or "any"
            lines.append(
                f"  worker {worker['worker']}: cores {cores}, device {worker['device']}, "
                f"threads {worker['threads']}"
            )
        if node["environment"]:
            lines.append(f"  environment of its workers: {shell_line(node['environment'])}")
    settings = shell_line(described["environment"])
    without = ", ".join(["anything of MPI's", *described["environment_without"]])
    lines.append(f"workers' environment: {settings}, without {without}")
    lines.append("nothing was started: leave --dry-run out to train")
    return lines


def _allocator(
    allocator: str, environment: Mapping[str, str], placement: Placement
) -> dict[str, str]:
    """Give the variables of an allocator; another host may have a library that is not here."""
    try:
        return allocator_environment(allocator, environment)
    except InvalidPlanError:
        if not placement.uses_remote_hosts:
            raise
        return {}


def _workers(job: Job, plan: Plan, node: Hardware) -> list[dict[str, Any]]:
    task = Task(purpose=Purpose.TRAIN, workload=job.workload, plan=plan)
    return [
        {
            "worker": worker.local_rank,
            "cores": list(worker.cores),
            "device": plan.device_of(worker.local_rank),
            "threads": plan.threads_per_process,
        }
        for worker in make_worker_tasks(task, node.cpu.choose_cores(plan.threads))
    ]
