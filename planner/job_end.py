"""Why has a job ended before its training was done? In the words of an error."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from launch.mpi.lost_host import LOGIN_BROKEN
from launch.process_end import explain_exit
from launch.workers.reports import JobFailed, lost_host, node_failed
from planner.errors import TrainingFailedError
from planner.placement import Placement


def explain_cause(cause: JobFailed, log: Path) -> TrainingFailedError:
    """Say what has failed first.

    Args:
        cause: What `find_cause` gave.
        log: What mpirun wrote to stderr.
    """
    if cause.workers == 0:
        message, tail = f"{cause.node}: {cause.message}", _tail(log)
    else:
        where = f"worker {cause.worker} of {cause.workers} on {cause.node}"
        message, tail = f"{where}: {cause.message}: see {cause.log}", cause.log_tail
    return TrainingFailedError(message, log_tail=tail, cause=cause)


def explain_end(code: int, log: Path) -> TrainingFailedError:
    """Say how mpirun has ended, where nobody knows why.

    Args:
        code: Its exit status, negative for a signal.
        log: What it wrote to stderr.
    """
    how = f"was {explain_exit(code)}" if code < 0 else f"ended with {explain_exit(code)}"
    is_broken = code in LOGIN_BROKEN
    how += ", as where a login to a host breaks," if is_broken else ""
    message = f"mpirun {how} before the training was done: see {log}"
    is_accident = code < 0 or is_broken
    return TrainingFailedError(message, log_tail=_tail(log), is_accident=is_accident)


def explain_silence(
    silent_s: float, placement: Placement, log: Path, *, is_stopped: bool, has_spoken: bool
) -> JobFailed:
    """Say who does not speak any more. That no rank ever has is no accident: it would not again.

    Args:
        silent_s: For how long nobody has.
        placement: Of the ranks.
        log: What mpirun wrote to stderr.
        is_stopped: Whether mpirun stands still.
        has_spoken: Whether a rank ever has.
    """
    if is_stopped:
        stopped = node_failed("mpirun", f"stands still, it is stopped, as by SIGSTOP: see {log}")
        return replace(stopped, is_hang=True)
    if not has_spoken:
        doctor = "ddlplan doctor --hosts FILE" if placement.logs_in else "ddlplan doctor"
        message = f"no rank has spoken in {silent_s:.0f} s: run {doctor}, and see {log}"
        return node_failed("mpirun", message)
    message = f"its rank does not answer, it has said nothing for {silent_s:.0f} s: see {log}"
    return lost_host(placement.hosts[0].name, message)


def _tail(path: Path, lines: int = 20) -> str:
    text = path.read_text(errors="replace").replace("\0", "")  # with which mpirun ends its words
    return "\n".join(text.splitlines()[-lines:])
