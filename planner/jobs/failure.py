"""Failure of a job: its root cause, and the error that says it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from launch.hosts.host_line import Host
from launch.hosts.ssh import ssh_name
from launch.mpi.mpirun_log import LOGIN_BROKEN, find_dead_rank, find_lost_host
from launch.reports import BestWeightsSaved, JobFailed, make_lost_host_failure, make_node_failure
from launch.system.process_end import explain_exit
from launch.workers.log import read_tail
from planner.errors import TrainingFailedError
from planner.jobs.mpi_run import MpiRunEnd
from planner.jobs.placement import Placement

_MAX_WORDS = 400
_TAIL_LINES = 20
_MPI_PORTS = (
    "MPI connects the hosts to each other at TCP ports from 1024 upwards, which a firewall must "
    "let through"
)
"""Likely reason where ranks wait for one another."""


def find_root_cause(
    failures: Sequence[JobFailed], log: str, hosts: Sequence[Host]
) -> JobFailed | None:
    """Find the failure that the others followed from; ``None`` where none was seen.

    Failures are in the order in which ranks reported them; hosts are by rank.

    A node's own worker failure counts first: the end of another node does not end its workers. A
    rank that dies reports nothing, but its daemon does. That a node is missed is a consequence
    where one of these is known.
    """
    if own := [failure for failure in failures if not failure.is_consequence]:
        return own[0]
    dead = find_dead_rank(log)
    if dead is not None and dead.rank < len(hosts):
        message = f"rank {dead.rank} was {explain_exit(-dead.signal)}"
        return replace(make_node_failure(hosts[dead.rank].name, message), signal=dead.signal)
    if lost := [failure for failure in failures if failure.is_lost_host]:
        return lost[0]
    if (name := find_lost_host(log)) is not None:
        names = {ssh_name(host): host.name for host in hosts}
        return make_lost_host_failure(names.get(name, name), "does not answer mpirun any more")
    return failures[0] if failures else None


def explain_root_cause(cause: JobFailed, log: Path) -> TrainingFailedError:
    """Make the error of a root cause; ``log`` has what mpirun wrote to stderr."""
    if cause.workers == 0:
        message, tail = f"{cause.node}: {cause.message}", _tail(log)
    else:
        where = f"worker {cause.worker} of {cause.workers} on {cause.node}"
        message, tail = f"{where}: {cause.message}: see {cause.log}", cause.log_tail
    return TrainingFailedError(message, log_tail=tail, cause=cause)


def explain_no_start(end: MpiRunEnd) -> str:
    """Say in a line why an MPI job has not begun, with the first words that mpirun wrote."""
    if end.failures:
        return end.failures[0].message
    lines = [" ".join(line.split()) for line in end.errors.splitlines()]
    said = [line for line in lines if any(char.isalnum() for char in line)]  # without the frame
    said = [line for line in said if "plm:ssh: Warning: setpgid" not in line]  # harmless
    words = f" ({' '.join(said)[:_MAX_WORDS]})" if said else ""
    if end.silence_s is not None:
        return f"no answer within {end.silence_s:g} s{words}: {_MPI_PORTS}"
    return f"mpirun {_describe_end(end.code)}{words}"


def explain_not_finite(
    cause: JobFailed,
    checkpoint: Path | None,
    best: BestWeightsSaved | None,
    host: str | None,
) -> TrainingFailedError:
    """Make the error of a training that stopped because it had no numbers any more.

    What it has kept is on ``host``, or on this machine: its last checkpoint and its best weights.
    """
    where = "" if host is None else f"{host}:"
    kept = "no checkpoint was written"
    if checkpoint is not None:
        kept = f"the last good checkpoint is {where}{checkpoint}"
    if best is not None:
        kept += f", the best weights are {where}{best.path}"
    return TrainingFailedError(
        f"{cause.message}: the training was stopped, its weights are not stored, and {kept}: lower "
        "the learning rate in the use case's optimizer, look for such values in its data, or train "
        "on with --allow-nan"
    )


def explain_end(code: int, log: Path) -> TrainingFailedError:
    """Make the error of an exit status, negative for a signal, whose cause is not known."""
    is_broken = code in LOGIN_BROKEN
    how = _describe_end(code)
    how += ", as where a login to a host breaks," if is_broken else ""
    message = f"mpirun {how} before the training was done: see {log}"
    is_accident = code < 0 or is_broken
    return TrainingFailedError(message, log_tail=_tail(log), is_accident=is_accident)


def explain_silence(
    silence_s: float, placement: Placement, log: Path, *, is_stopped: bool, has_reported: bool
) -> JobFailed:
    """Make the failure of a job that has become silent.

    That no rank has ever reported is no accident: none would the next time either.
    """
    if is_stopped:
        stopped = make_node_failure(
            "mpirun", f"stands still, it is stopped, as by SIGSTOP: see {log}"
        )
        return replace(stopped, is_hang=True)
    if not has_reported:
        doctor = "ddlplan doctor --hosts FILE" if placement.uses_remote_hosts else "ddlplan doctor"
        message = f"no rank has spoken in {silence_s:.0f} s: run {doctor}, and see {log}"
        return make_node_failure("mpirun", message)
    message = f"its rank does not answer, it has said nothing for {silence_s:.0f} s: see {log}"
    return make_lost_host_failure(placement.hosts[0].name, message)


def _describe_end(code: int) -> str:
    return f"{'was' if code < 0 else 'ended with'} {explain_exit(code)}"


def _tail(path: Path) -> str:
    # Ranks may have written gigabytes, and the user may have removed the folder of the run: the
    # failure is told all the same.
    return read_tail(path, _TAIL_LINES).replace("\0", "")  # mpirun ends what it writes with it
