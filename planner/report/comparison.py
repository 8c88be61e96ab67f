"""Comparison of two stored plans: differences, ratio of throughputs, conclusion."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from planner.plans.stored_plan import StoredPlan
from planner.quantities import format_bytes, format_interval, format_number
from planner.report.plans import plan_settings
from planner.report.table import Column, Terminal, render_table
from planner.scripts.naming import describe_trained
from probes import codec


@dataclass(frozen=True, slots=True)
class PlanComparison:
    """Two plans, and what their intervals show."""

    first: StoredPlan
    second: StoredPlan

    @property
    def ratio(self) -> float:
        """Throughput of the second / of the first."""
        one, other = self.first.throughput_samples_per_s, self.second.throughput_samples_per_s
        return other.median / one.median

    @property
    def intervals_overlap(self) -> bool:
        """Whether no difference of their throughputs is shown."""
        one, other = self.first.throughput_samples_per_s, self.second.throughput_samples_per_s
        return one.low <= other.high and other.low <= one.high

    @property
    def conclusion(self) -> str:
        """Result of the comparison, in a sentence."""
        if self.intervals_overlap:
            return "no difference shown: the intervals of their samples/s overlap"
        fast, slow, times = self.second, self.first, self.ratio
        if times < 1:
            fast, slow, times = slow, fast, 1 / times
        if fast.use_case != slow.use_case:
            return f"plan {fast.id} has {times:.2f} times the samples/s of plan {slow.id}"
        return f"plan {fast.id} is {times:.2f} times as fast as plan {slow.id}"

    @property
    def warnings(self) -> tuple[str, ...]:
        """Reasons why the two are hard to compare."""
        first, second = self.first, self.second
        found = []
        if first.use_case != second.use_case:
            found.append(
                f"plan {first.id} is for {describe_trained(first.use_case)} and plan {second.id} "
                f"for {describe_trained(second.use_case)}: a sample is not the same work"
            )
        if first.fingerprint != second.fingerprint:
            found.append(f"plans {first.id} and {second.id} were found on different hardware")
        return tuple(found)

    def to_json(self, *, first_stale: bool, second_stale: bool) -> dict[str, Any]:
        """Give the comparison as plain values for JSON."""
        one, other = self.first.to_json(stale=first_stale), self.second.to_json(stale=second_stale)
        keys = ("use_case", "node", "fingerprint", *codec.to_builtins(self.first.plan), "software")
        return {
            "first": one,
            "second": other,
            "differences": [key for key in keys if one[key] != other[key]],
            "throughput_ratio": self.ratio,
            "intervals_overlap": self.intervals_overlap,
            "verdict": self.conclusion,
        }


def comparison_text(comparison: PlanComparison, terminal: Terminal) -> str:
    """Give two plans field by field, with a mark where they differ, and the conclusion."""
    first, second = comparison.first, comparison.second
    columns = (
        Column(key="field", title="FIELD"),
        Column(key="differs", title=" ", style=lambda _: "yellow"),
        Column(key="first", title=f"PLAN {first.id}", may_cut=True),
        Column(key="second", title=f"PLAN {second.id}", may_cut=True),
        Column(key="ratio", title=f"{second.id} / {first.id}", right=True),
    )
    return render_table(_rows(comparison), columns, terminal) + f"\n{comparison.conclusion}\n"


def _rows(comparison: PlanComparison) -> Sequence[dict[str, str]]:
    both = [_fields(stored) for stored in (comparison.first, comparison.second)]
    ratios = _ratios(comparison)
    rows = []
    for field in both[0] | both[1]:
        first, second = (fields.get(field, "") for fields in both)
        row = {"field": field, "first": first, "second": second, "ratio": ratios.get(field, "")}
        rows.append(row | {"differs": "" if first == second else "*"})
    return rows


def _fields(stored: StoredPlan) -> dict[str, str]:
    return {
        "use case": describe_trained(stored.use_case),
        **({"data": "generated"} if stored.is_generated else {}),
        "host": stored.node,
        "hardware": stored.fingerprint[:19],
        **plan_settings(stored),
        "samples/s": format_interval(stored.throughput_samples_per_s),
        "speedup": format_interval(stored.speedup),
        "peak memory": format_bytes(stored.peak_memory_bytes),
        "found": f"{stored.created_at:%Y-%m-%d %H:%M}",
        **stored.software,
    }


def _ratios(comparison: PlanComparison) -> dict[str, str]:
    first, second = comparison.first, comparison.second
    ratios = {"samples/s": format_number(comparison.ratio)}
    if first.speedup and second.speedup:
        ratios["speedup"] = format_number(second.speedup.median / first.speedup.median)
    if first.peak_memory_bytes and second.peak_memory_bytes:
        ratios["peak memory"] = format_number(second.peak_memory_bytes / first.peak_memory_bytes)
    return ratios
