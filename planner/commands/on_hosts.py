"""What do the commands share that find something out on several hosts? The checks, the tables."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from launch.hosts.checked import HostsChecked
from launch.hosts.file import HostList
from launch.hosts.line import Host
from planner.output import Output
from planner.reach import Reach
from planner.report.nodes import LINK_COLUMNS, link_notes, link_rows
from planner.report.table import Column, Row, find_look, render_table
from planner.together.gathering import Gathering
from planner.together.reports import NodeFailed

STARTING_RANKS = "starting an MPI rank on each host"


def check_together(
    listed: HostList,
    reach: Reach,
    out: Output,
    *,
    use_case: str | None = None,
    data: str | None = None,
) -> HostsChecked:
    """Look whether all hosts can take part, before anything is started on one.

    Raises:
        HostUnreachableError: One cannot, or MPI does not join them.
        RefusedError: This is root, and the user has not said that it should be.
    """
    for note in listed.notes:
        out.warn(note)
    checked = check_each(listed.hosts, reach, out, use_case=use_case, data=data)
    reach.check_root()
    check_world(checked, reach, out)
    return checked


def check_each(
    hosts: Sequence[Host],
    reach: Reach,
    out: Output,
    *,
    use_case: str | None,
    data: str | None,
    runs: Path | None = None,
) -> HostsChecked:
    """Ask every host what it is, and see that each passes its checks; see `check_hosts`.

    Raises:
        HostUnreachableError: One does not.
    """
    out.note(f"checking {len(hosts)} hosts")
    with show_answers(out) as on_progress:
        checked = reach.check(
            hosts, use_case=use_case, data=data, runs=runs, on_progress=on_progress
        )
    checked.require_good()
    return checked


def check_world(
    checked: HostsChecked, reach: Reach, out: Output, names: Sequence[str] | None = None
) -> None:
    """See that MPI joins the hosts; `Reach.check_world`, which takes seconds."""
    with show_doing(out, STARTING_RANKS):
        reach.check_world(checked, names)


@contextmanager
def show_answers(out: Output) -> Iterator[Callable[[int, int], None]]:
    """Show on a terminal how many hosts have answered; give what is told of it."""
    asking = "asking every host"
    with show_doing(out, asking) as show:
        yield lambda done, of: show(f"{asking}: {done} of {of} answered")


@contextmanager
def show_doing(out: Output, doing: str) -> Iterator[Callable[[str], None]]:
    """Show on a terminal what is going on; give what changes it."""
    if not out.errors.is_terminal:
        yield lambda _doing: None
        return
    with out.errors.status(doing) as status:
        yield status.update


def show_table(
    rows: Sequence[Row], columns: Sequence[Column], out: Output, *, to_stdout: bool = True
) -> None:
    """Write a table: to stdout as a part of the answer, unless that is JSON, else to stderr."""
    if not rows or (to_stdout and out.as_json):
        return
    stream = sys.stdout if to_stdout else sys.stderr
    stream.write(render_table(rows, columns, find_look(stream, os.environ)))
    stream.flush()


def show_network(gathering: Gathering, out: Output) -> None:
    """Write what the network can do, where it was measured."""
    if gathering.links is None or not gathering.links.links:
        return
    out.say("")
    show_table(link_rows(gathering.links), LINK_COLUMNS, out)
    for note in link_notes(gathering.links):
        out.say(note)


def failure_json(failure: NodeFailed | None) -> dict[str, Any] | None:
    """Give a node's failure in the form that the error of a command has."""
    if failure is None:
        return None
    return {"code": failure.code, "kind": failure.error, "message": failure.message}
