"""What do the commands share that find something out on several hosts? The checks, the tables."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

from launch.hosts.checked import HostsChecked
from launch.hosts.file import HostList
from planner.output import Output
from planner.reach import Reach
from planner.report.nodes import LINK_COLUMNS, link_notes, link_rows
from planner.report.table import Column, Row, find_look, render_table
from planner.together.gathering import Gathering
from planner.together.reports import NodeFailed


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
        HostUnreachableError: One cannot.
        RefusedError: This is root, and the user has not said that it should be.
    """
    for note in listed.notes:
        out.warn(note)
    out.note(f"checking {len(listed.hosts)} hosts")
    checked = reach.check(listed.hosts, use_case=use_case, data=data)
    checked.require_good()
    reach.check_root()
    return checked


def show_table(rows: Sequence[Row], columns: Sequence[Column], out: Output) -> None:
    """Write a table, unless the answer is JSON."""
    if not out.as_json and rows:
        sys.stdout.write(render_table(rows, columns, find_look(sys.stdout, os.environ)))


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
