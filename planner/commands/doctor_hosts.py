"""Can these hosts do the job together? Each is asked, and all of them are shown in one table."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from launch.hosts.check import check_hosts
from launch.hosts.checked import HostsChecked, require_no_failure
from launch.hosts.file import read_host_file
from launch.hosts.finding import Finding, Judge
from launch.hosts.ssh import write_ssh_config
from launch.mpi.command import uses_srun
from launch.mpi.root import needs_root_option
from launch.mpi.settings import MpiSettings
from launch.mpi.world import find_world_fault
from planner.commands.doctor import finding_json, setting_findings
from planner.output import Output
from planner.report.hosts import HOST_COLUMNS, host_rows
from planner.report.table import find_look, render_table


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorRequest:
    """What the user wants looked at."""

    hosts: Path
    use_case: str | None = None
    data: str | None = None
    ssh_config: Path | None = None
    mpi: MpiSettings
    """The user's part of them; the rest comes of the checks."""


def examine_hosts(request: DoctorRequest, db: str, out: Output) -> None:
    """Check every host of a file, and this machine, which starts jobs on them.

    Raises:
        HostFileError: The host file, or the ssh configuration, cannot be used.
        HostUnreachableError: A host failed a check.
    """
    listed = read_host_file(request.hosts)
    for note in listed.notes:
        out.warn(note)
    with _progress(out) as on_progress:
        checked = check_hosts(
            listed.hosts,
            ssh_config=request.ssh_config,
            use_case=request.use_case,
            data=request.data,
            by_srun=uses_srun(request.mpi, os.environ),
            on_progress=on_progress,
        )
        here = checked.this_machine or f"{checked.here.host_name} (here)"
        findings = [*checked.findings, *setting_findings(here, db, request.mpi)]
        findings += _judge_world(request, checked, here)
    out.keep([finding_json(finding) for finding in findings])
    if not out.as_json:
        facts = {here: checked.here, **checked.facts}
        rows = host_rows(findings, facts, checked.addresses)
        sys.stdout.write(render_table(rows, HOST_COLUMNS, find_look(sys.stdout, os.environ)))
    require_no_failure(findings)
    out.finish([finding_json(finding) for finding in findings])


def _judge_world(request: DoctorRequest, checked: HostsChecked, here: str) -> Iterator[Finding]:
    """Start a tiny MPI job on the hosts that passed every check."""
    judge = Judge(here)
    hosts = checked.ranked
    if not hosts:
        return
    if needs_root_option(os.environ) and not request.mpi.allow_root:
        yield judge.note("MPI ranks", "not tried: as root it needs --allow-run-as-root")
        return
    with tempfile.TemporaryDirectory(prefix="ddlplan-") as folder:
        config = Path(folder, "ssh_config")
        write_ssh_config(hosts, config, include=request.ssh_config)
        settings = replace(request.mpi, ssh_config=config, networks=checked.networks)
        fault = find_world_fault(
            hosts,
            settings,
            os.environ,
            host_names=[checked.facts[host.name].host_name for host in hosts],
            starts_here=hosts[0].name == checked.this_machine,
        )
    if fault is not None:
        yield judge.fail("MPI ranks", fault)
        return
    over = f" over {', '.join(checked.networks)}" if checked.networks else ""
    for rank, host in enumerate(hosts):
        yield Judge(host.name).ok("MPI ranks", f"rank {rank} of {len(hosts)}{over}")


@contextmanager
def _progress(out: Output) -> Iterator[Callable[[int, int], None]]:
    """Show on a terminal how many hosts have answered."""
    if not out.errors.is_terminal:
        yield lambda _done, _of: None
        return
    with out.errors.status("asking every host") as status:
        yield lambda done, of: status.update(f"asking every host: {done} of {of} answered")
