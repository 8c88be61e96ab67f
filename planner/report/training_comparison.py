"""Comparison of two trainings: what they were, what they learned, how fast, what they used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from planner.quantities import (
    format_duration,
    format_interval,
    format_number,
    format_value,
    interval_json,
)
from planner.records.training_record import TrainingRecord
from planner.records.usage_record import HostUsage
from planner.report.plan_line import describe_plan
from planner.report.runs import mean_use
from planner.report.table import Column, Terminal, render_csv, render_table
from planner.scripts.naming import describe_trained, is_script
from planner.trainings.rates import ratio_of_trainings, training_rate
from probes import codec
from probes.timing import Interval

_FIELDS = ("field", "differs", "first", "second")
_NOT_OF_SCRIPTS = {
    *("data", "global batch", "seed", "epochs", "loss, last epoch", "samples/s, last epoch"),
    "time of all epochs",
}
"""Facts that nobody knows of a script: only its steps are seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSide:
    """One of two trainings, with what its hosts used."""

    record: TrainingRecord
    usage: Mapping[str, HostUsage] = field(default_factory=dict)

    @property
    def rate(self) -> Interval | None:
        """Samples per second."""
        return training_rate(self.record, self.usage)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingComparison:
    """Two trainings side by side."""

    first: TrainingSide
    second: TrainingSide

    @property
    def ratio(self) -> Interval | None:
        """Samples per second of the second / of the first; ``None`` where one has none."""
        one, other = self.first.rate, self.second.rate
        return None if one is None or other is None else ratio_of_trainings(one, other)

    @property
    def conclusion(self) -> str:
        """Result of the comparison, in a sentence."""
        ratio, ids = self.ratio, (self.first.record.id, self.second.record.id)
        if ratio is None:
            return "their speeds cannot be compared: one of them has trained nothing"
        if ratio.low <= 1 <= ratio.high:
            return (
                f"no difference of speed shown: training {ids[1]} is {format_interval(ratio)} "
                f"times as fast as training {ids[0]}"
            )
        if ratio.median < 1:
            ids = ids[::-1]
            ratio = ratio.reciprocal()
        return f"training {ids[1]} is {format_interval(ratio)} times as fast as training {ids[0]}"

    @property
    def warnings(self) -> tuple[str, ...]:
        """Reasons why the two are hard to compare."""
        one, other = self.first.record, self.second.record
        found = []
        if one.use_case != other.use_case:
            found.append(
                f"training {one.id} is of {describe_trained(one.use_case)} and training {other.id} "
                f"of {describe_trained(other.use_case)}: a sample is not the same work"
            )
        if one.machine != other.machine:
            found.append(f"trainings {one.id} and {other.id} were started on different machines")
        return tuple(found)

    def rows(self) -> list[tuple[str, str, str]]:
        """Give each fact with its two values."""
        first, second = (training_facts(each.record, each.usage) for each in self.sides)
        return [(name, first.get(name, ""), second.get(name, "")) for name in first | second]

    @property
    def sides(self) -> tuple[TrainingSide, TrainingSide]:
        return self.first, self.second

    def to_json(self) -> dict[str, Any]:
        """Give the comparison as plain values for JSON."""
        ratio = self.ratio
        return {
            "first": codec.to_builtins(self.first.record, null_for_nan=True),
            "second": codec.to_builtins(self.second.record, null_for_nan=True),
            "samples_per_s": [interval_json(each.rate) for each in self.sides],
            "differences": [name for name, one, other in self.rows() if one != other],
            "throughput_ratio": interval_json(ratio),
            "verdict": self.conclusion,
        }


def training_facts(one: TrainingRecord, usage: Mapping[str, HostUsage]) -> dict[str, str]:
    """Give what is compared of a training, with what its hosts used, as names and texts."""
    last, done = one.last_trained, one.epochs_done
    validated = [e.validation_loss for e in done if e.validation_loss is not None]
    expected = one.expected_samples_per_s
    facts = {
        "use case": describe_trained(one.use_case),
        "data": "generated" if one.is_generated else one.data or "the use case's own",
        "state": str(one.state),
        "hosts": " ".join(host.host for host in one.hosts),
        "plans": " ".join(str(host.plan_id) for host in one.hosts if host.plan_id is not None),
        "settings": "; ".join(dict.fromkeys(describe_plan(host.plan) for host in one.hosts)),
        "global batch": str(sum(host.plan.node_batch for host in one.hosts)),
        "seed": str(one.seed),
        "epochs": f"{one.last_epoch} of {one.epochs}",
        "steps": str(one.steps),
        "loss, last epoch": format_value(last.train_loss) if last else "",
        "validation loss, best epoch": format_value(min(validated)) if validated else "",
        **({n: format_value(v) for n, v in done[-1].metrics.items()} if done else {}),
        "samples/s": format_interval(training_rate(one, usage)),
        "samples/s, last epoch": format_number(last.throughput_samples_per_s) if last else "",
        "samples/s, predicted": format_number(expected) if expected else "",
        "time of all epochs": format_duration(
            sum(e.train_time_s + e.validation_time_s for e in done)
        ),
        **mean_use(usage),
        "started": f"{one.started_at:%Y-%m-%d %H:%M} UTC",
    }
    if not is_script(one.use_case):
        return facts
    return {name: text for name, text in facts.items() if name not in _NOT_OF_SCRIPTS}


def compared_trainings_text(comparison: TrainingComparison, terminal: Terminal) -> str:
    """Give two trainings fact by fact, with a mark where they differ, and the conclusion."""
    columns = (
        Column(key="field", title="FIELD"),
        Column(key="differs", title=" ", style=lambda _: "yellow"),
        Column(key="first", title=f"TRAINING {comparison.first.record.id}", may_cut=True),
        Column(key="second", title=f"TRAINING {comparison.second.record.id}", may_cut=True),
    )
    rows = [
        {"field": name, "differs": "" if one == other else "*", "first": one, "second": other}
        for name, one, other in comparison.rows()
        if one or other
    ]
    return render_table(rows, columns, terminal) + f"\n{comparison.conclusion}\n"


def compared_trainings_csv(comparison: TrainingComparison) -> str:
    """Give two trainings as CSV, a line for each fact."""
    return render_csv(
        [
            {"field": name, "differs": one != other, "first": one, "second": other}
            for name, one, other in comparison.rows()
        ],
        _FIELDS,
    )


def side_labels(sides: Sequence[TrainingSide]) -> list[str]:
    """Name trainings in a plot, by number and strategy."""
    return [
        f"{each.record.id}: "
        + " + ".join(dict.fromkeys(host.plan.strategy for host in each.record.hosts))
        for each in sides
    ]
