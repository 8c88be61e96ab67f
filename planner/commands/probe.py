"""The command ``ddlplan probe``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from planner.api.probing import NodeProbe, ProbeResult, probe
from planner.cluster.links import MeasuredLinks
from planner.input_cost.lines import data_facts
from planner.jobs.hosts import Hosts
from planner.records.job_record import JobKind
from planner.report.hardware import hardware_lines
from planner.report.live import LiveDisplay
from planner.report.nodes import PROBE_COLUMNS, failure_json, probe_row, write_network
from planner.report.output import Output
from planner.supervision.own_job import recorded_job
from planner.supervision.work_listener import WorkListener
from probes import codec


def show_probe(
    hosts: Hosts,
    db: str,
    out: Output,
    *,
    quick: bool,
    data: Path | None,
    waits: bool,
) -> None:
    """Probe this machine, or several hosts, and show what was found."""
    with recorded_job(db, JobKind.PROBE) as job:
        with LiveDisplay(out, hosts.names) as display:
            listener = WorkListener(job, display)
            result = probe(
                db=db, hosts=hosts, quick=quick, data=data, listener=listener, waits=waits
            )
        if hosts.is_local:
            _show_here(result, out)
        else:
            _show_hosts(result, out, quick=quick)


def _show_here(result: ProbeResult, out: Output) -> None:
    node = result.nodes[0].hardware
    assert node is not None
    for warning in node.warnings:
        out.warn(warning)
    for line in hardware_lines(node):
        out.write_line(line)
    out.finish([codec.to_builtins(node) | {"fingerprint": node.fingerprint()}])


def _show_hosts(result: ProbeResult, out: Output, *, quick: bool) -> None:
    for node in result.nodes:
        for warning in () if node.hardware is None else node.hardware.warnings:
            out.warn(f"{node.host}: {warning}")
    if result.links is None and len(result.nodes) > 1 and not quick:
        out.warn("the network was not measured: repeat the command")
    rows = [
        probe_row(node.host, node.hardware, "" if node.failure is None else node.failure.message)
        for node in result.nodes
    ]
    out.write_table(rows, PROBE_COLUMNS)
    write_network(result.links, out)
    for node in result.nodes:
        for speed in () if node.hardware is None else node.hardware.data:
            for name, text in data_facts(speed):
                out.write_line(f"{node.host}: {name} {text}")
    out.finish([_node_json(node, result.links) for node in result.nodes])


def _node_json(node: NodeProbe, measured: MeasuredLinks | None) -> dict[str, Any]:
    """Give a node as `probe` does without hosts, with its links."""
    links = () if measured is None else measured.links
    own = [link for link in links if node.host in (link.first, link.second)]
    found = {}
    if node.hardware is not None:
        found = codec.to_builtins(node.hardware) | {"fingerprint": node.hardware.fingerprint()}
    return {
        "host": node.host,
        "error": failure_json(node.failure),
        **found,
        "links": [
            {
                "to": link.second if link.first == node.host else link.first,
                "latency_s": link.latency_s,
                "bytes_per_s": link.bytes_per_s,
            }
            for link in own
        ],
        "all_reduces": [] if measured is None else _sums_json(node.host, measured),
    }


def _sums_json(host: str, measured: MeasuredLinks) -> list[dict[str, Any]]:
    """Give the times of all-reduces over all hosts, and their processor time on this one."""
    if host not in measured.hosts:
        return []
    rank = measured.hosts.index(host)
    return [
        asdict(one) | {"cpu_s": one.cpu_s[rank], "interrupts_s": one.interrupts_s[rank]}
        for one in measured.sums
    ]
