"""Tables of a cluster: hardware of the nodes, their plans, the links between them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from planner.cluster.links import MeasuredLinks
from planner.cluster_tuning.reports import NodeFailed
from planner.plans.stored_plan import StoredPlan
from planner.quantities import format_bytes, format_interval, format_number
from planner.report.output import Output
from planner.report.plan_line import describe_plan
from planner.report.table import Column, Row
from probes import codec
from probes.hardware import Hardware

_GIGA = 1e9
_MOST_LINKS = 12

PROBE_COLUMNS = (
    Column(key="host", title="HOST", may_cut=True),
    Column(key="cores", title="CORES", right=True),
    Column(key="memory", title="MEMORY", right=True),
    Column(key="gpus", title="GPUS", right=True),
    Column(key="fp32", title="FP32 GFLOP/S", right=True),
    Column(key="copy", title="COPY GB/S", right=True),
    Column(key="jpeg", title="JPEG/S", right=True, may_drop=True),
    Column(key="processor", title="PROCESSOR", may_cut=True, may_drop=True),
    Column(key="remarks", title="REMARKS", is_remark=True),
)

PLAN_COLUMNS = (
    Column(key="host", title="HOST", may_cut=True),
    Column(key="id", title="ID", right=True),
    Column(key="rate", title="SAMPLES/S", right=True),
    Column(key="speedup", title="SPEEDUP", right=True),
    Column(key="trials", title="TRIALS", right=True, may_drop=True),
    Column(key="plan", title="PLAN", may_cut=True),
    Column(key="remarks", title="REMARKS", is_remark=True),
)

LINK_COLUMNS = (
    Column(key="between", title="BETWEEN", may_cut=True),
    Column(key="latency", title="LATENCY", right=True),
    Column(key="rate", title="EACH WAY", right=True),
)


def probe_row(host: str, node: Hardware | None, remark: str = "") -> Row:
    """Give a row of `PROBE_COLUMNS`; of an unknown host only its name and the remark."""
    if node is None:
        return {"host": host, "remarks": remark}
    cells = {
        "host": host,
        "cores": f"{node.cpu.granted_cores:g}",
        "memory": format_bytes(node.memory.usable_bytes),
        "gpus": str(node.num_gpus or "none"),
        "processor": node.cpu.model or node.cpu.architecture,
        "remarks": remark,
    }
    if (speeds := node.speeds) is None:
        return cells
    return cells | {
        "fp32": _scaled(speeds.fp32_all_cores_flop_per_s, _GIGA),
        "copy": _scaled(speeds.copy_all_cores_bytes_per_s, _GIGA),
        "jpeg": _scaled(speeds.jpeg_one_core_images_per_s, 1.0),
    }


def plan_row(host: str, stored: StoredPlan | None, trials: int, remark: str = "") -> Row:
    """Give a row of `PLAN_COLUMNS`; of a node without a plan only its trials and the remark."""
    cells = {"host": host, "trials": str(trials or ""), "remarks": remark}
    if stored is None:
        return cells
    return cells | {
        "id": str(stored.id),
        "rate": format_interval(stored.throughput_samples_per_s),
        "speedup": format_interval(stored.speedup),
        "plan": describe_plan(stored.plan),
    }


def link_rows(measured: MeasuredLinks) -> list[Row]:
    """Give rows of `LINK_COLUMNS`; of many links only the slowest."""
    links = list(measured.links)
    if len(links) > _MOST_LINKS:
        links = sorted(links, key=lambda link: link.bytes_per_s)[:_MOST_LINKS]
    return [
        {
            "between": f"{link.first} - {link.second}",
            "latency": format_latency(link.latency_s),
            "rate": format_rate(link.bytes_per_s),
        }
        for link in links
    ]


def link_notes(measured: MeasuredLinks) -> Iterable[str]:
    """Give lines below the links: how many are not shown, and the all-reduces."""
    left = len(measured.links) - _MOST_LINKS
    if left > 0:
        yield f"and {left} faster links"
    for one in measured.sums:
        size = format_bytes(one.message_bytes)
        line = f"summing {size} over all hosts takes {_format_time(one.time_s)}"
        beside = (
            "" if one.beside_s is None else f", {_format_time(one.beside_s)} while they compute"
        )
        yield line + beside


def write_network(measured: MeasuredLinks | None, out: Output) -> None:
    """Write what the network can do, where it was measured."""
    if measured is None or not measured.links:
        return
    out.write_line("")
    out.write_table(link_rows(measured), LINK_COLUMNS)
    for note in link_notes(measured):
        out.write_line(note)


def failure_json(failure: NodeFailed | None) -> dict[str, Any] | None:
    """Give a node's failure in the form that the error of a command has."""
    if failure is None:
        return None
    return {"code": failure.code, "kind": failure.error, "message": failure.message}


def links_json(measured: MeasuredLinks | None) -> Mapping[str, object] | None:
    """Give the links as JSON for scripts."""
    if measured is None:
        return None
    values = codec.to_builtins(measured)
    return {"hosts": values["hosts"], "links": values["links"], "all_reduces": values["sums"]}


def format_rate(bytes_per_s: float) -> str:
    """Write a bandwidth in bits: ``0.942 Gb/s``."""
    return f"{format_number(8 * bytes_per_s / _GIGA)} Gb/s"


def format_latency(latency_s: float) -> str:
    """Write a latency: ``43.1 us``."""
    if latency_s < 1e-3:
        return f"{format_number(1e6 * latency_s)} us"
    return _format_time(latency_s)


def _format_time(time_s: float) -> str:
    """Write a short time: ``12.3 ms``, ``1.52 s``."""
    return f"{format_number(1e3 * time_s)} ms" if time_s < 1 else f"{format_number(time_s)} s"


def _scaled(value: float | None, unit: float) -> str:
    return "" if value is None else format_number(value / unit)
