"""Use of a machine over time: what the latest training of each strategy used."""

from __future__ import annotations

from launch.strategies import strategy_names
from planner.paper_tables._evidence import StoredEvidence, TrainingEvidence, mark_generated
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
    notes = [
        "The latest training of each strategy"
        + ("; of several hosts the first." if any(":" in label for label in shown) else "."),
        *(
            f"{label}: training {one.record.id}{', generated data' * one.is_generated}."
            for label, one in shown.items()
        ),
    ]
    alone = {one.strategies for one in shown.values() if len(one.record.hosts) == 1}
    notes += [
        f"{strategy}: missing: {_why_untrained(held, case, strategy)}."
        for strategy in strategy_names()
        if strategy not in alone
    ]
    if not any(len(one.record.hosts) > 1 for one in shown.values()):
        command = f"ddlplan launch --use-case {case} --hosts FILE"
        notes.append(f"several hosts: missing: no such training is stored: {command}.")
    if not any(one.uses_gpus for one in shown.values()):
        notes.append("GPUs in use: missing: none of these trainings ran on a GPU.")
    notes.append("The curves of the paper: not found here.")
    return UsagePlots(
        key=f"lerat-{case}-use",
        title=mark_generated(
            f"{title}, use over time by strategy (figures 2 to 5 of the paper)",
            (one.is_generated for one in shown.values()),
        ),
        usage={label: use for label, one in shown.items() if (use := one.first_use) is not None},
        notes=tuple(notes),
    )


def _why_untrained(held: StoredEvidence, case: str, strategy: str) -> str:
    for study in held.of(case):
        if (obstacle := study.obstacles.get(strategy)) is not None:
            return obstacle
    reason = held.reasons.get(training_key(case, strategy)) or held.reasons.get(
        trial_key(case, strategy)
    )
    return reason or "no training with it is stored: ddlplan report --measure"
