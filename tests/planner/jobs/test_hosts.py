"""How hosts are reached: the user's mpirun is one that we speak to."""

from __future__ import annotations

import pytest
from own_mpirun import write_mpirun

from planner.errors import UsageError
from planner.jobs.hosts import HostAccess

OPEN_MPI = "mpirun (Open MPI) 5.0.3"


@pytest.mark.parametrize("version", [OPEN_MPI, "mpirun.openmpi (OpenRTE) 4.1.4"])
def test_users_own_open_mpi_is_accepted(tmp_path, version):
    HostAccess(mpirun=write_mpirun(tmp_path, version)).check_mpirun()


@pytest.mark.parametrize("version", ["HYDRA build details:", "mpirun (Open MPI) 3.1.0", ""])
def test_mpirun_that_we_do_not_speak_to_is_a_bad_option(tmp_path, version):
    own = write_mpirun(tmp_path, version)
    with pytest.raises(UsageError, match=r"^--mpirun=.*: expected Open MPI 4 or later") as refused:
        HostAccess(mpirun=own).check_mpirun()
    assert own in str(refused.value)


def test_mpirun_that_cannot_be_started_is_a_bad_option(tmp_path):
    program = tmp_path / "mpirun"
    program.write_bytes(b"\x7fELF, but not really")
    program.chmod(0o755)
    with pytest.raises(UsageError, match=r"^--mpirun=.*: it does not tell its version: .*Exec"):
        HostAccess(mpirun=str(program)).check_mpirun()


@pytest.mark.usefixtures("without_mpirun")
def test_machine_without_any_mpirun_is_told_how_to_get_one(monkeypatch, tmp_path):
    with pytest.raises(UsageError, match=r"^no mpirun beside this Python nor .*pip install"):
        HostAccess().require_mpirun()
    write_mpirun(tmp_path, OPEN_MPI)
    monkeypatch.setenv("PATH", str(tmp_path))
    HostAccess().require_mpirun()


@pytest.mark.usefixtures("without_mpirun")
def test_slurm_starts_the_ranks_without_any_mpirun_but_no_peers(monkeypatch, tmp_path):
    (tmp_path / "srun").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    HostAccess().require_mpirun()
    with pytest.raises(UsageError, match=r"^no mpirun beside this Python nor .*pip install"):
        HostAccess().require_mpirun(also_in_slurm=True)
