"""The command that starts a program on every node."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from own_mpirun import write_mpirun

from launch.errors import LaunchError
from launch.hosts.host_line import Host
from launch.mpi.command import mpi_command
from launch.mpi.settings import MpiSettings

TOLD = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
REMOTE_ONLY = {"--mca", "--prtemca", "--prefix", "-x"}


def command(hosts, environment=None, *, starts_here=True, **settings):
    named = [Host(name=host, line=line) for line, host in enumerate(hosts, start=1)]
    return mpi_command(
        named,
        ["launch.rank", "/runs/1/job.json"],
        MpiSettings(**settings),
        environment or {},
        starts_here=starts_here,
    )


def after(arguments, flag):
    return arguments[arguments.index(flag) + 1]


def mca(arguments):
    """Every setting of Open MPI and of PRRTE."""
    flags = [i for i, word in enumerate(arguments) if word in ("--mca", "--prtemca")]
    return {arguments[i + 1]: arguments[i + 2] for i in flags}


def exported(arguments):
    return {arguments[i + 1] for i, word in enumerate(arguments) if word == "-x"}


def program_of(arguments):
    return arguments[arguments.index(sys.executable) :]


@pytest.fixture
def slurm(tmp_path):
    """What a process of an allocation finds around it."""
    srun = tmp_path / "srun"
    srun.touch(mode=0o755)
    return {"SLURM_JOB_ID": "7", "PATH": str(tmp_path)}


@pytest.mark.parametrize("host", ["::1", "127.0.0.1", "localhost", "this-machine.example.org"])
def test_this_machine_has_one_name_for_mpirun(host):
    """The story: ``[::1]`` in a host file became ``--host ::1:1``."""
    assert after(command([host]), "--host") == "localhost:1"


def test_this_machine_alone_needs_no_network():
    assert REMOTE_ONLY.isdisjoint(command(["a"], {"PYTHONPATH": "/lib"}))


def test_one_other_machine_is_logged_in_to():
    arguments = command(["a"], starts_here=False)
    assert after(arguments, "--host") == "a:1"
    assert after(arguments, "--prefix") == sys.prefix


def test_node_of_a_slurm_job_without_srun_keeps_the_name_that_slurm_gave_it():
    assert after(command(["gpu01"], {"SLURM_JOB_ID": "7"}), "--host") == "gpu01:1"


def test_several_hosts_have_a_rank_each():
    arguments = command(["a", "b", "c"], starts_here=False)
    assert after(arguments, "--host") == "a:1,b:1,c:1"
    assert after(arguments, "-n") == "3"
    assert after(arguments, "--map-by") == "ppr:1:node"
    assert after(arguments, "--bind-to") == "none"


def test_addresses_with_colons_are_hosts_of_mpirun_too():
    """mpirun would take what stands after the last colon for a number of slots."""
    hosts = after(command(["a", "2001:db8::1", "2001:db8::2"]), "--host").split(",")
    assert [host.count(":") for host in hosts] == [1, 1, 1]
    assert len(set(hosts)) == 3


def test_program_runs_in_this_python_on_every_host():
    start = [sys.executable, "-P", "-m", "mpi4py", "-m", "launch.rank", "/runs/1/job.json"]
    assert program_of(command(["a", "b"])) == start


def test_messages_keep_to_the_networks():
    settings = mca(command(["a", "b"], networks=("10.0.0.0/24", "10.1.0.0/24")))
    assert settings["btl_tcp_if_include"] == "10.0.0.0/24,10.1.0.0/24"


def test_without_networks_the_choice_is_left_to_mpi():
    assert not [name for name in mca(command(["a", "b"])) if "include" in name]


def test_logins_read_the_ssh_configuration_of_the_job(tmp_path):
    settings = mca(command(["a", "b"], ssh_config=tmp_path / "ssh_config"))
    assert settings["plm_ssh_args"] == f"-F {tmp_path / 'ssh_config'}"


def test_ssh_configuration_in_a_folder_with_a_space_is_named_from_here(tmp_path, monkeypatch):
    folder = tmp_path / "my project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    settings = mca(command(["a", "b"], ssh_config=folder / "runs" / "1" / "ssh_config"))
    assert settings["plm_ssh_args"] == "-F runs/1/ssh_config"
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LaunchError, match="start in another folder"):
        command(["a", "b"], ssh_config=folder / "ssh_config")


def test_settings_of_ours_travel_by_name_and_nothing_else_does():
    environment = {"DDLPLAN_DB": "secret", "PYTHONPATH": "/lib", "HOME": "/root", "TOKEN": "x"}
    arguments = command(["a", "b"], environment)
    assert exported(arguments) == {"DDLPLAN_DB", "PYTHONPATH"}
    assert not any("secret" in word for word in arguments)


def test_users_own_mpirun_is_taken_and_finds_its_own_files(tmp_path):
    own = write_mpirun(tmp_path, "mpirun (Open MPI) 5.0.3")
    arguments = command(["a", "b"], mpirun=own)
    assert arguments[0] == own
    assert "--prefix" not in arguments


@pytest.mark.parametrize("version", ["mpirun (Open MPI) 4.1.4", "mpirun.openmpi (OpenRTE) 4.1.4"])
def test_daemons_of_open_mpi_4_are_told_in_their_own_words(tmp_path, version):
    own = write_mpirun(tmp_path, version)
    arguments = command(["a", "b"], mpirun=own, ssh_config=tmp_path / "ssh_config")
    assert "--prtemca" not in arguments
    assert mca(arguments)["plm_rsh_args"] == f"-F {tmp_path / 'ssh_config'}"


def test_mpirun_beside_the_systems_python_may_be_of_open_mpi_4(tmp_path, monkeypatch):
    """The story: that of Debian was taken for ours, which is newer, and refused our options."""
    own = write_mpirun(tmp_path, "mpirun (Open MPI) 4.1.4")
    monkeypatch.setattr(sys, "executable", str(Path(own).with_name("python3")))
    arguments = command(["a", "b"])
    assert arguments[0] == own
    assert "--prtemca" not in arguments


@pytest.mark.parametrize("version", ["HYDRA build details:", "mpirun (Open MPI) 3.1.0", ""])
def test_mpirun_that_we_do_not_speak_to_is_an_error(tmp_path, version):
    with pytest.raises(LaunchError, match="expected Open MPI 4 or later"):
        command(["a", "b"], mpirun=write_mpirun(tmp_path, version))


def test_mpirun_that_does_not_answer_in_time_is_told_in_words(tmp_path, monkeypatch):
    """The story: the limit was 10 s, which a cold disk takes, and the words were those of Python:
    a list of arguments that timed out."""
    monkeypatch.setattr("launch.mpi.version._VERSION_LIMIT_S", 0.2)
    own = tmp_path / "mpirun"
    own.write_text("#!/bin/sh\nexec sleep 60\n")
    own.chmod(0o755)
    said = f"mpirun={own}: it has not told its version within 0.2 s: is the disk busy?"
    with pytest.raises(LaunchError) as refused:
        command(["a", "b"], mpirun=str(own))
    assert str(refused.value) == said


def test_users_own_mpirun_alone_is_not_asked_for_its_version(tmp_path):
    own = write_mpirun(tmp_path, "HYDRA build details:")
    assert command(["a"], mpirun=own)[0] == own


def test_mpirun_that_is_not_there_is_an_error():
    with pytest.raises(LaunchError, match="mpirun=/nowhere/mpirun"):
        command(["a", "b"], mpirun="/nowhere/mpirun")


def test_slurm_starts_the_ranks_of_its_allocation_in_our_order(slurm):
    arguments = command(["n3", "n1"], slurm)
    assert arguments[0] == "srun"
    assert {"--nodelist=n3,n1", "--distribution=arbitrary", "--mpi=pmix"} <= set(arguments)
    assert {"--nodes=2", "--ntasks=2", "--ntasks-per-node=1"} <= set(arguments)
    assert program_of(arguments) == program_of(command(["n3", "n1"]))


def test_slurm_tells_ranks_how_to_send(slurm):
    arguments = command(["n3", "n1"], slurm, networks=("10.0.0.0/24", "10.1.0.0/24"))
    assert "OMPI_MCA_btl_tcp_if_include=10.0.0.0/24,10.1.0.0/24" in arguments
    assert arguments.index("env") > arguments.index("--mpi=pmix")


def test_users_own_mpirun_wins_over_slurm(slurm, tmp_path):
    own = write_mpirun(tmp_path, "mpirun (Open MPI) 5.0.3")
    assert command(["n3", "n1"], slurm, mpirun=own)[0] == own


def test_srun_outside_of_an_allocation_is_left_alone(slurm):
    del slurm["SLURM_JOB_ID"]
    assert "srun" not in command(["a", "b"], slurm)[0]


@pytest.mark.parametrize("hosts", [["a"], ["a", "b"]])
def test_nothing_ever_allows_more_ranks_than_hosts(hosts):
    assert not [word for word in command(hosts) if "oversubscribe" in word.lower()]


def test_root_is_allowed_by_an_option_only_where_mpirun_needs_one():
    is_needed = os.geteuid() == 0
    assert ("--allow-run-as-root" in command(["a"], allow_root=True)) == is_needed
    assert "--allow-run-as-root" not in command(["a"], TOLD, allow_root=True)
    assert "--allow-run-as-root" not in command(["a"])
