"""Jobs without ranks: a scripted program sends their reports and ends as the test needs it."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from launch.hosts.host_line import Host
from launch.job import CheckpointConfig, Job, NodeJob
from launch.plan import Plan
from launch.reports import Report, StepDone, Validated, WeightsSaved
from launch.system.run_directory import RunDirectory
from launch.workload import Workload
from planner.jobs.hosts import HostAccess
from planner.jobs.placement import Placement

HOSTS = tuple(Host(name=f"node{number}", line=number) for number in (1, 2))
PREPARED = """
import os, signal, sys, time
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
def send(line): print(line, flush=True)
def wait_for_end_signal(): signal.sigwait([signal.SIGUSR2])
"""


@dataclass(frozen=True, kw_only=True)
class ScriptedPlacement(Placement):
    """Starts a program in place of mpirun."""

    hosts: tuple[Host, ...] = HOSTS
    access: HostAccess = field(default_factory=HostAccess)
    program: str

    def prepare(self, directory: RunDirectory) -> None:
        pass

    def deliver(self, directory: RunDirectory) -> Path:
        return directory.job

    def command(
        self, program: Sequence[str], directory: RunDirectory, environment: Mapping[str, str]
    ) -> list[str]:
        return [sys.executable, "-c", PREPARED + self.program]


def sending(*reports: Report) -> str:
    """Give the lines of a program that sends these reports."""
    return "".join(f"send({report.encode().decode().strip()!r})\n" for report in reports)


def job(**checkpoint) -> Job:
    plan = Plan(strategy="sequential", node_batch=4)
    return Job(
        workload=Workload(use_case="tiny"),
        nodes=tuple(NodeJob(host=host.name, plan=plan) for host in HOSTS),
        run_directory="",
        checkpoint=CheckpointConfig(**checkpoint),
    )


def step(number: int) -> StepDone:
    return StepDone(step=number, epoch=0, time_s=0.1, samples=8, loss=1.0)


VALIDATED = Validated(epoch=0, samples=4, loss_sum=4.0, weight=4.0, time_s=0.1)
WEIGHTS = WeightsSaved(path="/far/runs/1/weights.safetensors", num_bytes=8)
WHOLE = sending(step(1), VALIDATED, VALIDATED, WEIGHTS)
"""One epoch of both nodes, to its end."""
