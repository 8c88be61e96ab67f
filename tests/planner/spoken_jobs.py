"""Jobs without ranks: a program says what ranks would, and ends as it is told to."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from launch.hosts.line import Host
from launch.job import Job, Keeping, NodeJob
from launch.plan import Plan
from launch.run_directory import RunDirectory
from launch.workers.reports import Report, StepDone, Validated, WeightsSaved
from planner.placement import Placement
from planner.reach import Reach

HOSTS = tuple(Host(name=f"node{number}", line=number) for number in (1, 2))
PREPARED = """
import os, signal, sys, time
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
def say(line): print(line, flush=True)
def wait_for_the_wish_to_end(): signal.sigwait([signal.SIGUSR2])
"""


@dataclass(frozen=True, kw_only=True)
class Spoken(Placement):
    """Starts a program in place of mpirun."""

    hosts: tuple[Host, ...] = HOSTS
    reach: Reach = field(default_factory=Reach)
    program: str

    def prepare(self, directory: RunDirectory) -> Path:
        return directory.job

    def command(
        self, program: Sequence[str], directory: RunDirectory, environment: Mapping[str, str]
    ) -> list[str]:
        return [sys.executable, "-c", PREPARED + self.program]


def saying(*reports: Report) -> str:
    """Give a program that says so, and goes on."""
    return "".join(f"say({report.encode().decode().strip()!r})\n" for report in reports)


def job(**keeping) -> Job:
    plan = Plan(strategy="sequential", node_batch=4)
    return Job(
        use_case="tiny",
        nodes=tuple(NodeJob(host=host.name, plan=plan) for host in HOSTS),
        run_directory="",
        keeping=Keeping(**keeping),
    )


def step(number: int) -> StepDone:
    return StepDone(step=number, epoch=0, time_s=0.1, samples=8, loss=1.0)


VALIDATED = Validated(epoch=0, samples=4, loss_sum=4.0, time_s=0.1)
WEIGHTS = WeightsSaved(path="/far/runs/1/weights.safetensors", num_bytes=8)
WHOLE = saying(step(1), VALIDATED, VALIDATED, WEIGHTS)
"""One epoch of both nodes, to its end."""
