"""Table of checked hosts: one row a host, with its problems as a remark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from launch.hosts.findings import Finding
from launch.hosts.host_facts import HostFacts
from planner.quantities import format_bytes
from planner.report.table import Column, Row

_STATE_STYLE = {"ok": "green", "note": "yellow", "fail": "red"}

HOST_COLUMNS = (
    Column(key="host", title="HOST", may_cut=True),
    Column(key="state", title="STATE", style=lambda state: _STATE_STYLE.get(state, "")),
    Column(key="cores", title="CORES", right=True),
    Column(key="memory", title="MEMORY", right=True),
    Column(key="gpus", title="GPUS", right=True),
    Column(key="address", title="ADDRESS", may_drop=True),
    Column(key="torch", title="TORCH", may_drop=True),
    Column(key="data", title="FILES", right=True, may_drop=True),
    Column(key="remarks", title="REMARKS", is_remark=True),
)


def host_rows(
    findings: Sequence[Finding], facts: Mapping[str, HostFacts], addresses: Mapping[str, str]
) -> list[Row]:
    """Give rows of `HOST_COLUMNS`, a host each, in the order of the findings.

    Facts are there of hosts that answered, addresses are those that MPI will use.
    """
    names = dict.fromkeys(finding.host for finding in findings)
    return [
        {
            "host": name,
            "state": _worst_state([finding for finding in findings if finding.host == name]),
            "address": addresses.get(name, ""),
            "remarks": "; ".join(
                f"{finding.check}: {finding.text}"
                for finding in findings
                if finding.host == name and finding.state != "ok"
            ),
            **(_fact_cells(facts[name]) if name in facts else {}),
        }
        for name in names
    ]


def _worst_state(findings: Sequence[Finding]) -> str:
    """Give the state of a host: that of its worst finding."""
    return max((f.state for f in findings), key=list(_STATE_STYLE).index, default="ok")


def _fact_cells(facts: HostFacts) -> Row:
    cells = {"torch": facts.versions.get("torch") or ""}
    if (hardware := facts.hardware) is not None:
        cells["cores"] = f"{hardware.cpu.granted_cores:g}"
        cells["memory"] = format_bytes(hardware.memory.usable_bytes)
        cells["gpus"] = str(hardware.num_gpus)
    if facts.data is not None and facts.data.num_files is not None:
        cells["data"] = str(facts.data.num_files)
    return cells
