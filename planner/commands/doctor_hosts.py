"""Can these hosts do the job together? Each is asked, and all of them are shown in one table."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from launch.hosts.checked import HostsChecked, require_no_failure
from launch.hosts.file import HostList
from launch.hosts.finding import Finding, Judge
from launch.mpi.root import needs_root_option
from launch.mpi.settings import MpiSettings
from planner.commands.doctor import finding_json, setting_findings
from planner.commands.on_hosts import STARTING_RANKS, show_answers, show_doing
from planner.commands.training import RUNS
from planner.output import Output
from planner.reach import Reach
from planner.report.hosts import HOST_COLUMNS, host_rows
from planner.report.table import find_look, render_table


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorRequest:
    """What the user wants looked at."""

    listed: HostList
    use_case: str | None = None
    data: str | None = None
    ssh_config: Path | None = None
    mpi: MpiSettings
    """The user's part of them; the rest comes of the checks."""

    @property
    def reach(self) -> Reach:
        """How the hosts are reached."""
        mpirun, allow_root = self.mpi.mpirun, self.mpi.allow_root
        return Reach(ssh_config=self.ssh_config, mpirun=mpirun, allow_root=allow_root)


def examine_hosts(request: DoctorRequest, db: str, out: Output) -> None:
    """Check every host of a file, and this machine, which starts jobs on them.

    Raises:
        HostFileError: The host file, or the ssh configuration, cannot be used.
        HostUnreachableError: A host failed a check.
    """
    listed = request.listed
    for note in listed.notes:
        out.warn(note)
    with show_answers(out) as on_progress:
        checked = request.reach.check(
            listed.hosts,
            use_case=request.use_case,
            data=request.data,
            runs=RUNS,
            on_progress=on_progress,
        )
    here = checked.this_machine or f"{checked.here.host_name} (here)"
    findings = [*checked.findings, *setting_findings(here, db, request.mpi)]
    with show_doing(out, STARTING_RANKS):
        findings += _judge_world(request.reach, checked, here)
    out.keep([finding_json(finding) for finding in findings])
    if not out.as_json:
        facts = {here: checked.here, **checked.facts}
        rows = host_rows(findings, facts, checked.addresses)
        sys.stdout.write(render_table(rows, HOST_COLUMNS, find_look(sys.stdout, os.environ)))
    require_no_failure(findings)
    out.finish([finding_json(finding) for finding in findings])


def _judge_world(reach: Reach, checked: HostsChecked, here: str) -> Iterator[Finding]:
    """Start a tiny MPI job on the hosts that passed every check."""
    judge = Judge(here)
    hosts = checked.ranked
    if not hosts:
        return
    if needs_root_option(os.environ) and not reach.allow_root:
        yield judge.note("MPI ranks", "not tried: as root it needs --allow-run-as-root")
        return
    fault = reach.find_world_fault(checked)
    if fault is not None:
        yield judge.fail("MPI ranks", fault)
        return
    over = f" over {', '.join(checked.networks)}" if checked.networks else ""
    for rank, host in enumerate(hosts):
        yield Judge(host.name).ok("MPI ranks", f"rank {rank} of {len(hosts)}{over}")
