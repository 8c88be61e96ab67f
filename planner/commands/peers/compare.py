"""The command ``ddlplan compare``."""

from __future__ import annotations

from pathlib import Path

from planner.api.comparing import compare
from planner.jobs.hosts import Hosts
from planner.peer_runs.request import CompareRequest
from planner.report.live import LiveDisplay
from planner.report.output import Output
from planner.report.page.files import check_page, write_page
from planner.report.peers.page import comparison_page
from planner.report.peers.table import comparison_csv, comparison_text


def show_comparison(
    request: CompareRequest, hosts: Hosts, db: str, out: Output, *, waits: bool, html: Path | None
) -> None:
    """Compare and show what was found, also where it was interrupted or ours failed."""
    if html is not None:
        check_page(html)
    with LiveDisplay(out, hosts.names) as display:
        found = compare(request, db=db, hosts=hosts, listener=display, waits=waits)
    if html is not None:
        write_page(html, comparison_page(found))
        out.note(f"wrote {html}")
    out.write_text_or_csv(
        lambda terminal: comparison_text(found, terminal), lambda: comparison_csv(found)
    )
    if found.interrupted:
        out.note("stopped early: what is shown was measured before")
    if found.failure is not None:
        out.set_partial_data(found.to_json())
        raise found.failure
    out.finish(found.to_json())
    if found.interrupted:
        raise KeyboardInterrupt
