"""Use of a machine over time: what the latest training of each strategy used."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from launch.strategies import strategy_names
from planner.paper_tables._evidence import StoredEvidence, TrainingEvidence, mark_generated
from planner.paper_tables._reasons import db_option, measure_command
from planner.paper_tables._values import UsagePlots
from planner.paper_tables._wanted import training_key, trial_key


def strategy_use(held: StoredEvidence, case: str, title: str) -> UsagePlots:
    """Give what the latest training of each strategy used."""
    shown: dict[str, TrainingEvidence] = {}
    for one in held.trained(case):
        hosts = len(one.record.hosts)
        label = one.strategies if hosts == 1 else f"{hosts} hosts: {one.strategies}"
        if label not in shown and one.first_use is not None:
            shown[label] = one
    return UsagePlots(
        key=f"lerat-{case}-use",
        title=mark_generated(
            f"{title}, use over time by strategy (figures 2 to 5 of the paper)",
            (one.is_generated for one in shown.values()),
        ),
        usage={label: use for label, one in shown.items() if (use := one.first_use) is not None},
        made_up=frozenset(label for label, one in shown.items() if one.is_generated),
        notes=(
            *(_notes(held, case, shown) if shown else _notes_without_any(held, case)),
            "The curves of the paper: not found here.",
        ),
    )


def _notes(held: StoredEvidence, case: str, shown: Mapping[str, TrainingEvidence]) -> Iterator[str]:
    yield (
        "The latest training of each strategy"
        + ("; of several hosts the first." if any(":" in label for label in shown) else ".")
    )
    hosts = {label: one.record.hosts[0].host for label, one in shown.items()}
    for label, one in shown.items():
        said = "" if one.precision == "fp32" else f" in {one.precision}"
        said += ", generated data" * one.is_generated
        yield f"{label}: training {one.record.id} on {hosts[label]}{said}."
    yield from held.describe_hosts(hosts.values())
    alone = {one.strategies for one in shown.values() if len(one.record.hosts) == 1}
    for strategy in strategy_names():
        if strategy not in alone:
            yield f"{strategy}: missing: {_why_untrained(held, case, strategy)}."
    if not any(len(one.record.hosts) > 1 for one in shown.values()):
        command = f"ddlplan launch --use-case {case} --hosts FILE{db_option(held)}"
        yield f"several hosts: missing: no such training is stored: {command}."
    if not any(one.uses_gpus for one in shown.values()):
        yield "GPUs in use: missing: none of these trainings ran on a GPU."


def _notes_without_any(held: StoredEvidence, case: str) -> Iterator[str]:
    """Say each reason once, of all strategies that have it: a terminal shows them in one line."""
    by_reason = defaultdict[str, list[str]](list)
    for strategy in strategy_names():
        by_reason[_why_untrained(held, case, strategy)].append(strategy)
    for why, strategies in by_reason.items():
        which = "each strategy" if len(by_reason) == 1 else ", ".join(strategies)
        yield f"{which}: missing: {why}."


def _why_untrained(held: StoredEvidence, case: str, strategy: str) -> str:
    for study in held.of(case):
        if (obstacle := study.obstacles.get(strategy)) is not None:
            return obstacle
    reason = held.reasons.get(training_key(case, strategy)) or held.reasons.get(
        trial_key(case, strategy)
    )
    return reason or f"no training with it is stored: {measure_command(held)}"
