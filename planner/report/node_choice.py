"""Tables and lines for the choice of nodes: shares, subsets, gains, and the same as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from planner.cluster.node_choice import TIE, NodeChoice, NodeGain
from planner.cluster.prediction import Prediction
from planner.jobs.making import NodePlan
from planner.quantities import format_number
from planner.report.plan_line import describe_settings
from planner.report.table import Column, Row

SHARE_COLUMNS = (
    Column(key="host", title="HOST", may_cut=True),
    Column(key="plan", title="PLAN", right=True),
    Column(key="strategy", title="STRATEGY"),
    Column(key="settings", title="SETTINGS", may_cut=True, may_drop=True),
    Column(key="alone", title="ALONE/S", right=True),
    Column(key="share", title="SHARE", right=True),
    Column(key="computing", title="COMPUTES", right=True),
    Column(key="gain", title="WORTH", right=True),
)

SUBSET_COLUMNS = (
    Column(key="chosen", title=""),
    Column(key="hosts", title="HOSTS", may_cut=True),
    Column(key="batch", title="BATCH", right=True),
    Column(key="step", title="STEP", right=True),
    Column(key="network", title="NETWORK", right=True),
    Column(key="throughput", title="SAMPLES/S", right=True),
)

_SHOWN_SUBSETS = 7
_MAX_JSON_SUBSETS = 64
"""Of ten hosts there are 1023."""


def share_rows(plans: Sequence[NodePlan], choice: NodeChoice) -> list[Row]:
    """Give rows of `SHARE_COLUMNS`: each host's plan, its share and its computing time."""
    chosen = choice.chosen
    parts = zip(chosen.hosts, chosen.batches, chosen.computing_s, strict=True)
    shares = {host: (batch, time_s) for host, batch, time_s in parts}
    gains = {gain.host: gain for gain in choice.gains}
    rows: list[Row] = []
    for plan in plans:
        batch, time_s = shares.get(plan.host, (0, None))
        rows.append(
            {
                "host": plan.host,
                "plan": str(plan.stored.id),
                "strategy": plan.stored.plan.strategy,
                "settings": describe_settings(plan.plan),
                "alone": format_number(plan.stored.throughput_samples_per_s.median),
                "share": str(batch) if batch else "none",
                "computing": "" if time_s is None else f"{format_number(time_s)} s",
                "gain": _percent(gains[plan.host].gain) if plan.host in gains else "",
            }
        )
    return rows


def subset_rows(choice: NodeChoice) -> list[Row]:
    """Give rows of `SUBSET_COLUMNS`: the fastest, the chosen one, all hosts, the best one alone."""
    largest = max(len(found.hosts) for found in choice.predictions)
    fastest = choice.predictions[:_SHOWN_SUBSETS]
    alone = next((p for p in choice.predictions if len(p.hosts) == 1), None)
    whole = next(p for p in choice.predictions if len(p.hosts) == largest)
    wanted = [*fastest, *(p for p in (choice.chosen, alone, whole) if p is not None)]
    shown = sorted(set(wanted), key=choice.predictions.index)
    return [_subset_row(found, is_chosen=found == choice.chosen) for found in shown]


def _subset_row(found: Prediction, *, is_chosen: bool) -> Row:
    return {
        "chosen": "*" if is_chosen else "",
        "hosts": " ".join(found.hosts),
        "batch": str(found.global_batch),
        "step": f"{format_number(found.step_s)} s",
        "network": f"{format_number(found.wire_s)} s" if found.wire_s else "",
        "throughput": format_number(found.throughput_samples_per_s),
    }


def choice_lines(choice: NodeChoice, probes: str) -> Iterator[str]:
    """Describe which of several hosts are used and what each adds, a sentence a line.

    ``probes`` is the command that measures their network.
    """
    chosen, best = choice.chosen, choice.best
    speed = f"{format_number(chosen.throughput_samples_per_s)} samples/s"
    if not choice.knows_network:
        yield (
            f"all {len(chosen.hosts)} hosts are used, at most {speed}: what the network takes of "
            f"it is not known before {probes} has measured it"
        )
        return
    if len(chosen.hosts) == 1:
        yield f"{chosen.hosts[0]} alone is fastest: {speed} predicted"
    else:
        yield f"{', '.join(chosen.hosts)} train together: {speed} predicted"
    if chosen != best:
        gain = best.throughput_samples_per_s / chosen.throughput_samples_per_s - 1
        names = ", ".join(best.hosts)
        alone = "alone " if len(best.hosts) == 1 else ""
        how = f"{100 * gain:.0f} % faster" if gain > TIE else "as fast"
        yield f"all hosts are used because that was asked for: {names} {alone}would be {how}"
    for gain_of in choice.gains:
        if line := _gain_line(gain_of):
            yield line
    if (larger := choice.larger) is not None:
        gain = larger.throughput_samples_per_s / chosen.throughput_samples_per_s - 1
        yield (
            f"--global-batch {larger.global_batch} would train {100 * gain:.0f} % more samples a "
            f"second on {', '.join(larger.hosts)}; how well a model learns depends on its batch"
        )


def _gain_line(gain_of: NodeGain) -> str | None:
    host, gain = gain_of.host, gain_of.gain
    if gain is None:
        return None if gain_of.is_used else f"leave {host} out: it cannot take a share"
    percent = f"{100 * abs(gain):.0f} %"
    if gain_of.is_used and abs(gain) < TIE:
        return f"{host} adds less than {100 * TIE:.0f} %, which none can tell"
    if gain_of.is_used:
        return f"{host} adds {percent}" if gain > 0 else f"{host} slows the job by {percent}"
    if gain < -TIE:
        return f"leave {host} out: it would slow the job by {percent}"
    return f"leave {host} out: it would add less than {100 * TIE:.0f} %, which none can tell"


def _percent(gain: float | None) -> str:
    return "" if gain is None else f"{100 * gain:+.0f} %"


def _prediction_json(found: Prediction) -> dict[str, Any]:
    """Give a prediction as plain values for JSON."""
    return {
        "hosts": list(found.hosts),
        "node_batches": list(found.batches),
        "global_batch": found.global_batch,
        "computing_s": list(found.computing_s),
        "network_s": found.wire_s,
        "step_s": found.step_s,
        "throughput_samples_per_s": found.throughput_samples_per_s,
    }


def choice_json(choice: NodeChoice) -> dict[str, Any]:
    """Give a choice of nodes as plain values for JSON."""
    return {
        "chosen": _prediction_json(choice.chosen),
        "best": _prediction_json(choice.best),
        "subsets": [_prediction_json(found) for found in choice.predictions[:_MAX_JSON_SUBSETS]],
        "nodes": [
            {"host": one.host, "is_used": one.is_used, "gain": one.gain} for one in choice.gains
        ],
        "larger_batch": None if choice.larger is None else _prediction_json(choice.larger),
        "knows_network": choice.knows_network,
    }
