"""Hosts of a search or a job, and how they are reached."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from launch.errors import InvalidPlanError, LaunchError
from launch.hosts.check import check_hosts
from launch.hosts.findings import CheckedHosts, require_no_failure
from launch.hosts.host_file import expand_hosts, read_host_file
from launch.hosts.host_line import Host
from launch.hosts.name_resolution import is_this_machine
from launch.hosts.parallel_commands import run_all
from launch.mpi.command import uses_srun
from launch.mpi.mpirun import find_mpirun, needs_root_option
from launch.mpi.settings import MpiSettings
from launch.mpi.version import read_major_version
from launch.reports import Noted, Working
from launch.workload import Workload
from planner.cancellation import Cancellation
from planner.errors import RefusedError, UsageError
from planner.plans.objective import TIME_TO_LOSS
from planner.quantities import format_count
from planner.trials.reports import Listener

_ALLOCATION = "SLURM_JOB_NODELIST"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostAccess:
    """How the hosts are reached."""

    ssh_config: Path | None = None
    """Read in place of ``~/.ssh/config``."""

    mpirun: str | None = None
    """A site's own, in place of the one that came with us."""

    allow_root: bool = False

    @property
    def starts_by_srun(self) -> bool:
        """Whether Slurm starts the ranks, so that neither mpirun nor ssh is needed."""
        return uses_srun(MpiSettings(mpirun=self.mpirun), os.environ)

    def check_mpirun(self) -> None:
        """Check that the user's own mpirun, if one is named, is one that we can use.

        Raises:
            UsageError: It is not there, does not run, or is none of Open MPI 4 or later.
        """
        if self.mpirun is None:
            return
        try:
            read_major_version(find_mpirun(self.mpirun))
        except LaunchError as error:
            raise UsageError(f"--{error}") from error  # it begins with mpirun=...

    def require_mpirun(self, *, also_in_slurm: bool = False) -> None:
        """Check the same, and that there is an mpirun at all, unless Slurm starts the ranks.

        Peers need one in a Slurm job too.

        Raises:
            UsageError: There is none that we can use.
        """
        self.check_mpirun()
        if self.mpirun is None and (also_in_slurm or not self.starts_by_srun):
            try:
                find_mpirun()
            except LaunchError as error:
                raise UsageError(str(error)) from error

    def check_root(self) -> None:
        """Check that root may start mpirun.

        Raises:
            RefusedError: This is root, and the user has not said that it should be.
        """
        if needs_root_option(os.environ) and not self.allow_root:
            raise RefusedError(
                "running as root, which mpirun refuses because a slip can ruin the machine: "
                "run as a user, or in a container pass --allow-run-as-root"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosts:
    """The machines that take part in a search or a job, and how they are reached."""

    machines: tuple[Host, ...]
    """In the order of the host file."""

    is_local: bool
    """Whether this machine is the only one."""

    access: HostAccess = field(default_factory=HostAccess)

    file: Path | None = None
    """Host file that lists them, if one does."""

    notes: tuple[str, ...] = ()
    """Entries of the file without effect, for the user to know."""

    @staticmethod
    def find(
        file: Path | None = None,
        *,
        access: HostAccess | None = None,
        environment: Mapping[str, str] = os.environ,
    ) -> Hosts:
        """Give the hosts of a file, else of the Slurm allocation, else this machine.

        Args:
            file: Names one host a line.
            access: How they are reached; by default as ``ssh`` and ``mpirun`` are set up.
            environment: Has Slurm's variables.

        Raises:
            HostFileError: The file or the allocation cannot be read.
            UnsafeHostError: A name could be taken for an option or a command.
        """
        if file is not None:
            listed = read_host_file(file)
        else:
            listed = expand_hosts(environment.get(_ALLOCATION) or "localhost", source=_ALLOCATION)
        return _make_hosts(listed.hosts, access or HostAccess(), file, listed.notes)

    @staticmethod
    def this_machine(access: HostAccess | None = None) -> Hosts:
        """Give this machine alone."""
        return Hosts.find(access=access, environment={})

    def only(self, machines: Sequence[Host]) -> Hosts:
        """Give some of the hosts, reached in the same way."""
        return _make_hosts(tuple(machines), self.access, self.file)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the hosts, as the file has them."""
        return tuple(host.name for host in self.machines)

    def check_objective(self, objective: str) -> None:
        """Check that a search on them can rank plans so.

        Raises:
            InvalidPlanError: It is the time to a loss, and this machine is not the only one.
        """
        if objective == TIME_TO_LOSS and not self.is_local:
            raise InvalidPlanError(
                f"--objective {objective} and {format_count(len(self.machines), 'host')}: the "
                "batch of all hosts decides, which no host chooses alone: use it on one machine"
            )

    def check(
        self,
        listener: Listener,
        cancellation: Cancellation,
        *,
        workload: Workload | None = None,
        runs: Path | None = None,
    ) -> CheckedHosts:
        """Check at the same time whether each host can take part; see `check_hosts`.

        ``runs`` is the folder in which a job will leave its files on every host.

        Raises:
            CancelledError: The end was asked for.
        """
        asking = "asking every host"
        listener(Working(what=asking))

        def on_progress(done: int, total: int) -> None:
            listener(Working(what=f"{asking}: {done} of {total} answered"))

        return check_hosts(
            self.machines,
            ssh_config=self.access.ssh_config,
            workload=workload,
            runs=runs,
            by_srun=self.access.starts_by_srun,
            on_progress=on_progress,
            run_commands=partial(run_all, on_poll=cancellation.check),
        )

    def check_good(
        self,
        listener: Listener,
        cancellation: Cancellation,
        *,
        workload: Workload | None = None,
        runs: Path | None = None,
    ) -> CheckedHosts:
        """Check that each host can take part.

        Raises:
            HostUnreachableError: One cannot.
            CancelledError: The end was asked for.
        """
        listener(Noted(message=f"checking {format_count(len(self.machines), 'host')}"))
        checked = self.check(listener, cancellation, workload=workload, runs=runs)
        require_no_failure(checked.findings)
        return checked


def _make_hosts(
    machines: tuple[Host, ...], access: HostAccess, file: Path | None, notes: tuple[str, ...] = ()
) -> Hosts:
    is_local = len(machines) == 1 and is_this_machine(machines[0])
    return Hosts(machines=machines, is_local=is_local, access=access, file=file, notes=notes)
