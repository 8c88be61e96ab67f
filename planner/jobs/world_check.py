"""Check that MPI starts one rank on each host and that they reach each other: a tiny job."""

from __future__ import annotations

from collections.abc import Sequence

from launch.errors import HostUnreachableError, LaunchError
from launch.hosts.findings import CheckedHosts
from launch.reports import RanksJoined, Report, Working
from planner.cancellation import Cancellation
from planner.jobs.failure import explain_no_start
from planner.jobs.hosts import HostAccess
from planner.jobs.mpi_run import run_mpi, temporary_run_directory
from planner.jobs.placement import Placement
from planner.trials.reports import Listener

LIMIT_S = 45.0


def check_world(
    checked: CheckedHosts,
    access: HostAccess,
    listener: Listener,
    cancellation: Cancellation,
    names: Sequence[str] | None = None,
) -> None:
    """Check that MPI joins the hosts, which takes seconds; see `find_world_fault`.

    Raises:
        HostUnreachableError: It does not.
        CancelledError: The end was asked for.
    """
    if (fault := find_world_fault(checked, access, listener, cancellation, names)) is not None:
        raise HostUnreachableError(f"MPI ranks: {fault}")


def find_world_fault(
    checked: CheckedHosts,
    access: HostAccess,
    listener: Listener,
    cancellation: Cancellation,
    names: Sequence[str] | None = None,
    *,
    limit_s: float = LIMIT_S,
) -> str | None:
    """Run the smallest job there is; explain what is wrong with it, ``None`` where nothing is.

    ``names`` are the hosts that will take part, by rank; all good ones where left out.
    The ranks have ``limit_s`` to report, and as long from then on to end.
    """
    listener(Working(what="starting an MPI rank on each host"))
    names = names or [host.name for host in checked.ranked]
    joined: list[RanksJoined] = []

    def on_report(report: Report) -> None:
        if isinstance(report, RanksJoined):
            joined.append(report)

    placement = Placement.of(checked, names, access)
    with temporary_run_directory() as directory:
        try:
            end = run_mpi(
                placement,
                "launch.mpi.rank_names",
                None,
                directory,
                on_report,
                cancellation,
                start_limit_s=limit_s,
                silence_limit_s=limit_s,
            )
        except LaunchError as error:
            return str(error)
    if end.code != 0:
        return explain_no_start(end)
    hosts = joined[0].names if joined else ()
    if len(hosts) != len(names):
        found = f"{len(hosts)} of {len(names)} ranks" if joined else "no ranks"
        return f"MPI joined {found}: is this mpirun of the MPI that mpi4py uses? leave out --mpirun"
    wrong = [
        f"{name} got the rank of {host}"
        for name, host in zip(names, hosts, strict=True)
        if host != checked.facts[name].host_name
    ]
    return f"{wrong[0]}: is {names[0]} the machine that you mean?" if wrong else None
