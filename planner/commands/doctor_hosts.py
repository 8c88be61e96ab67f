"""Can these hosts do the job together? Each is asked, and all of them are shown in one table."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from launch.hosts.check import check_hosts
from launch.hosts.checked import require_no_failure
from launch.hosts.file import read_host_file
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
            on_progress=on_progress,
        )
    here = checked.this_machine or f"{checked.here.host_name} (here)"
    findings = [*checked.findings, *setting_findings(here, db)]
    out.keep([finding_json(finding) for finding in findings])
    if not out.as_json:
        facts = {here: checked.here, **checked.facts}
        rows = host_rows(findings, facts, checked.addresses)
        sys.stdout.write(render_table(rows, HOST_COLUMNS, find_look(sys.stdout, os.environ)))
    require_no_failure(findings)
    out.finish([finding_json(finding) for finding in findings])


@contextmanager
def _progress(out: Output) -> Iterator[Callable[[int, int], None]]:
    """Show on a terminal how many hosts have answered."""
    if not out.errors.is_terminal:
        yield lambda _done, _of: None
        return
    with out.errors.status("asking every host") as status:
        yield lambda done, of: status.update(f"asking every host: {done} of {of} answered")
