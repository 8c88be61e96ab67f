"""The command ``ddlplan doctor --hosts``."""

from __future__ import annotations

import os
from collections.abc import Iterator

from launch.hosts.findings import CheckedHosts, Finding, FindingFactory, require_no_failure
from launch.mpi.mpirun import needs_root_option
from launch.workload import Workload
from planner.cancellation import Cancellation
from planner.commands.doctor import check_settings, finding_json
from planner.jobs.hosts import HostAccess, Hosts
from planner.jobs.training import RUNS
from planner.jobs.world_check import find_world_fault
from planner.records.job_record import JobKind
from planner.report.hosts import HOST_COLUMNS, host_rows
from planner.report.live import LiveDisplay
from planner.report.output import Output
from planner.supervision.own_job import recorded_job
from planner.supervision.work_listener import WorkListener
from planner.trials.reports import Listener


def examine_hosts(hosts: Hosts, db: str, out: Output, *, workload: Workload | None) -> None:
    """Check every host of a file, and this machine, which starts jobs on them.

    Raises:
        HostFileError: The host file, or the ssh configuration, cannot be used.
        HostUnreachableError: A host failed a check.
    """
    with recorded_job(db, JobKind.DOCTOR) as job:
        for note in hosts.notes:
            out.warn(note)
        with LiveDisplay(out, hosts.names) as display:
            listener = WorkListener(job, display)
            checked = hosts.check(listener, Cancellation(), workload=workload, runs=RUNS)
            here = checked.this_machine or f"{checked.here.host_name} (here)"
            findings = [*checked.findings, *check_settings(here, db, hosts.access)]
            findings += _check_world(hosts.access, checked, here, listener)
        document = [finding_json(finding) for finding in findings]
        out.set_partial_data(document)
        facts = {here: checked.here, **checked.facts}
        out.write_table(host_rows(findings, facts, checked.addresses), HOST_COLUMNS)
        require_no_failure(findings)
        out.finish(document)


def _check_world(
    access: HostAccess, checked: CheckedHosts, here: str, listener: Listener
) -> Iterator[Finding]:
    """Start a tiny MPI job on the hosts that passed every check."""
    findings = FindingFactory(here)
    hosts = checked.ranked
    if not hosts:
        return
    if needs_root_option(os.environ) and not access.allow_root:
        yield findings.note("MPI ranks", "not tried: as root it needs --allow-run-as-root")
        return
    fault = find_world_fault(checked, access, listener, Cancellation())
    if fault is not None:
        yield findings.fail("MPI ranks", fault)
        return
    over = f" over {', '.join(checked.networks)}" if checked.networks else ""
    for rank, host in enumerate(hosts):
        yield FindingFactory(host.name).ok("MPI ranks", f"rank {rank} of {len(hosts)}{over}")
