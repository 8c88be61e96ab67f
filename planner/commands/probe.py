"""What does `ddlplan probe` do? It looks at this machine, keeps what it found, and shows it."""

from __future__ import annotations

from contextlib import nullcontext

from planner.output import Output
from planner.report.hardware import hardware_lines
from planner.store import Store
from probes.node import probe


def probe_here(db: str, out: Output, *, quick: bool) -> None:
    """Find out what this machine is."""
    waiting = out.errors.status("probing this machine")
    with Store.open(db) as store:
        with waiting if out.errors.is_terminal else nullcontext():
            node = probe(quick=quick)
        store.save_probe(node)
    for warning in node.warnings:
        out.warn(warning)
    for line in hardware_lines(node):
        out.say(line)
    out.finish([node.to_json() | {"fingerprint": node.fingerprint()}])
