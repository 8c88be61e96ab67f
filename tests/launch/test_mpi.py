"""Which command starts a job?"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from launch.job import Job, NodeJob
from launch.mpi import mpirun_command
from launch.plan import Plan

ALONE = Plan(strategy="sequential", node_batch=8)
TOLD = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def command(hosts, environment=None, **options):
    nodes = tuple(NodeJob(host=host, plan=ALONE) for host in hosts)
    job = Job(use_case="simplebig", nodes=nodes, run_directory="/runs/1")
    return mpirun_command(job, Path("/runs/1/job.json"), environment or {}, **options)


def hosts_of(arguments):
    return arguments[arguments.index("--host") + 1]


@pytest.mark.parametrize("host", ["::1", "127.0.0.1", "localhost", "this-machine.example.org"])
def test_this_machine_has_one_name_for_mpirun(host):
    """The story: ``[::1]`` in a host file became ``--host ::1:1``."""
    assert hosts_of(command([host])) == "localhost:1"


def test_node_of_a_slurm_job_keeps_the_name_that_slurm_gave_it():
    assert hosts_of(command(["gpu01"], {"SLURM_JOB_ID": "7"})) == "gpu01:1"


def test_several_hosts_have_a_rank_each():
    assert hosts_of(command(["a", "b"])) == "a:1,b:1"


def test_root_is_allowed_by_an_option_only_where_mpirun_needs_one():
    is_needed = os.geteuid() == 0
    assert ("--allow-run-as-root" in command(["a"], allow_root=True)) == is_needed
    assert "--allow-run-as-root" not in command(["a"], TOLD, allow_root=True)
    assert "--allow-run-as-root" not in command(["a"])
