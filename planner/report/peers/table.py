"""Comparison with peers as a table with its conclusions, and as CSV."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from planner.peer_runs.comparer import SETTING_WORDS
from planner.peer_runs.request import Setting
from planner.peer_runs.result import Comparison, PeerResult, TimeParts
from planner.quantities import format_count, format_interval, format_range, interval_cells
from planner.report.plan_line import describe_plan
from planner.report.plans import GENERATED
from planner.report.table import Column, Row, Terminal, render_csv, render_facts, render_table

_NOT_MEASURED = "-"

_COLUMNS = (
    Column(key="peer", title="PEER"),
    Column(key="setting", title="AS"),
    Column(key="rate", title="SAMPLES/S", right=True),
    Column(key="ratio", title="OURS / IT", right=True),
    Column(key="loading", title="LOAD", right=True),
    Column(key="exchange", title="SYNC", right=True),
    Column(key="update", title="UPDATE", right=True, may_drop=True),
    Column(key="start", title="START", right=True),
    Column(key="spread", title="PROCESSES", right=True, may_drop=True),
    Column(key="version", title="VERSION", may_drop=True),
    Column(key="reason", title="REASON", is_remark=True),
)

_FIELDS = (
    *("peer", "setting", "version", "processes", "threads_per_process", "samples_per_s"),
    *("samples_per_s_low", "samples_per_s_high", "ours_per_peer", "ours_per_peer_low"),
    *("ours_per_peer_high", "rounds", "loading_share", "exchange_share", "update_share"),
    *("start_s", "error", "data"),
)


def comparison_text(found: Comparison, terminal: Terminal) -> str:
    """Give the table, our own plan, and the fastest peers."""
    rows = [*own_rows(found), *map(peer_row, found.results)]
    return render_table(rows, _COLUMNS, terminal) + "\n" + render_facts(facts(found), terminal)


def facts(found: Comparison) -> list[tuple[str, str]]:
    """Give what is not in the table: where, ours, and the conclusions."""
    plans = dict.fromkeys(describe_plan(plan) for plan in found.plans)
    where = ", ".join(
        f"{host.name} ({host.cpu or 'unknown CPU'}, {format_count(host.cores, 'core')})"
        for host in found.hosts
    )
    software = ", ".join(f"{name} {version}" for name, version in found.software.items())
    batch = format_count(found.node_batch, "sample")
    return [
        ("trained", f"{found.use_case}, {batch} a step on each host"),
        *([("data", GENERATED)] if found.is_generated else []),
        ("on", where),
        ("software", software),
        ("ours", "; ".join(plans)),
        *(
            [("ended early", f"ours failed, which ended the comparison: {found.failure}")]
            if found.failure is not None
            else []
        ),
        *((f"fastest {SETTING_WORDS[s]}", text) for s, text in conclusions(found)),
    ]


def conclusions(found: Comparison) -> Iterator[tuple[Setting, str]]:
    """Give how ours does against the fastest peer of each setting."""
    for setting in dict.fromkeys(result.setting for result in found.results):
        fastest = found.fastest(setting)
        if fastest is None or fastest.ratio is None:
            trained = any(r.rounds for r in found.results if r.setting is setting)
            yield setting, "too few rounds to compare, one alone" if trained else "none trained"
        else:
            ratio = format_range(fastest.ratio)
            is_open = fastest.ratio.low <= 1 <= fastest.ratio.high
            unsure = "; which one is faster is open: raise --budget or --starts" if is_open else ""
            yield setting, f"{fastest.peer}: ours is {ratio} times as fast{unsure}"


def own_rows(found: Comparison) -> list[Row]:
    """Give the row of ours over all turns; none where it had no turn."""
    if found.samples_per_s is None:
        return []
    return [
        {
            "peer": "ours",
            "rate": format_interval(found.samples_per_s),
            **_format_parts(found.parts),
            "start": _format_start(found.start_s),
        }
    ]


def peer_row(result: PeerResult) -> Row:
    """Give the row of a peer."""
    return {
        "peer": result.peer,
        "setting": str(result.setting),
        "rate": format_interval(result.samples_per_s),
        "ratio": format_interval(result.ratio),
        **(_format_parts(result.parts) if result.rounds else {}),
        "start": _format_start(result.start_s),
        "spread": "" if result.processes is None else f"{result.processes} x {result.threads}",
        "version": result.version or "",
        "reason": result.reason or "",
    }


def _format_parts(parts: TimeParts) -> dict[str, str]:
    """Write the parts of a step's time: ``loading``, ``exchange`` and ``update``."""
    shares = {"loading": parts.loading, "exchange": parts.exchange, "update": parts.update}
    return {
        name: _NOT_MEASURED if share is None else f"{100 * share:.0f} %"
        for name, share in shares.items()
    }


def _format_start(start_s: Sequence[float]) -> str:
    """Write the start-up; nothing where there was none."""
    return f"{median(start_s):.1f} s" if start_s else ""


def comparison_csv(found: Comparison) -> str:
    """Give a line for each peer, and one for ours."""
    own = {"peer": "ours", **_measured_cells(found)}
    rows = [
        {
            "peer": result.peer,
            "setting": str(result.setting),
            "version": result.version,
            "processes": result.processes,
            "threads_per_process": result.threads,
            **_measured_cells(result),
            **interval_cells("ours_per_peer", result.ratio),
            "rounds": len(result.rounds),
            "error": result.reason,
        }
        for result in found.results
    ]
    data = "generated" if found.is_generated else None
    return render_csv([{**row, "data": data} for row in (own, *rows)], _FIELDS)


def _measured_cells(one: PeerResult | Comparison) -> dict[str, float | None]:
    """Give what is measured of a peer and of ours alike."""
    parts = one.parts
    return {
        **interval_cells("samples_per_s", one.samples_per_s),
        "loading_share": parts.loading,
        "exchange_share": parts.exchange,
        "update_share": parts.update,
        "start_s": median(one.start_s) if one.start_s else None,
    }
