"""Worth of a plan as text: parts of its step, baselines, runner-up, variations."""

from __future__ import annotations

import math

from planner.input_cost.epochs import InputCost
from planner.input_cost.lines import input_lines
from planner.quantities import (
    format_count,
    format_duration,
    format_interval,
    format_number,
    format_range,
    format_seconds,
    is_unreliable,
    with_ends,
)
from planner.report.plan_line import describe_plan
from planner.report.runs import noise_span
from planner.report.table import Column, Row, Terminal, render_facts, render_table
from planner.worth.batch_advice import BatchAdvice, BatchChoice
from planner.worth.step_parts import StepPart
from planner.worth.variations import Basis, Variation
from planner.worth.worth import KnownBaseline, PlanWorth, RunnerUp
from probes.timing import Interval

_NOT_IN_TURNS = "from trials of other moments, not from turns side by side"

_PARTS = (
    Column(key="part", title="PART OF A STEP"),
    Column(key="time", title="TIME", right=True),
    Column(key="share", title="SHARE", right=True),
    Column(key="source", title="FROM", may_cut=True),
)
_BASELINES = (
    Column(key="name", title="BASELINE"),
    Column(key="rate", title="SAMPLES/S", right=True),
    Column(key="speedup", title="SPEEDUP"),
    Column(key="paid", title="PAID AFTER"),
)
_BATCHES = (
    Column(key="batch", title="BATCH", right=True),
    Column(key="rate", title="SAMPLES/S", right=True),
    Column(key="worth", title="WORTH OF A SAMPLE", right=True),
    Column(key="time", title="TIME TO A LOSS / THE PLAN'S", right=True),
)
_VARIATIONS = (
    Column(key="setting", title="SETTING"),
    Column(key="value", title="HERE"),
    Column(key="other", title="OTHER"),
    Column(key="speed", title="SPEED OF OTHER"),
    Column(key="basis", title="FROM", may_cut=True),
)


def worth_text(worth: PlanWorth, terminal: Terminal) -> str:
    """Give tables of all that is known, with an empty line before each."""
    batches = () if worth.batches is None else worth.batches.choices
    tables = (
        ([part_row(part, worth) for part in worth.step_parts], _PARTS),
        ([baseline_row(one) for one in worth.baselines], _BASELINES),
        ([variation_row(one) for one in known_variations(worth)], _VARIATIONS),
        ([batch_row(one) for one in batches], _BATCHES),
    )
    found = [render_table(rows, columns, terminal) for rows, columns in tables if rows]
    return "".join(f"\n{text}" for text in (*found, render_facts(worth_facts(worth), terminal)))


def worth_facts(worth: PlanWorth) -> list[tuple[str, str]]:
    """Give what is said in a line each."""
    trials = format_count(worth.num_trials, "trial")
    took = f"{format_duration(worth.tuning_s)} in {trials}, their preparation apart"
    facts = [("tuning took", took)]
    if apart := [one.name for one in worth.baselines if not one.in_turns]:
        facts.append(("estimated", f"speedup over {', '.join(apart)}: {_NOT_IN_TURNS}"))
    if worth.batches is not None:
        facts.append(("noise scale", _describe_advice(worth.batches)))
    if worth.batches_unknown is not None:
        facts.append(("other batches", f"not known: {worth.batches_unknown}"))
    if worth.runner_up is not None:
        facts.append(("runner-up", _describe_runner_up(worth.runner_up)))
    unknown = dict.fromkeys(
        f"{one.setting} {one.other}" for one in worth.variations if one.basis is Basis.UNKNOWN
    )
    if unknown:
        facts.append(("not tried", ", ".join(unknown)))
    return facts


def worth_sentences(worth: PlanWorth) -> list[str]:
    """Give what is said in a line each, and when tuning has paid, as sentences."""
    lines = [f"{name}: {value}" for name, value in worth_facts(worth) if name != "not tried"]
    paid = [
        f"{baseline_row(one)['paid']} against {one.name}"
        for one in worth.baselines
        if one.training_until_paid_s is not None
    ]
    if paid:
        lines.append(f"tuning has paid after {', '.join(paid)}")
    return [f"{line[0].upper()}{line[1:]}." for line in lines]


def _describe_runner_up(runner_up: RunnerUp) -> str:
    """Say how far behind the next plan is, how sure that is, and whether it is shown at all."""
    lead, plan = runner_up.lead, describe_plan(runner_up.plan)
    word, sure = (
        ("faster", runner_up.certainty) if lead.median >= 1 else ("slower", 1 - runner_up.certainty)
    )
    how = "" if runner_up.in_turns else f"; {_NOT_IN_TURNS}"
    if lead.low <= 1 <= lead.high:
        by = "by how much is not known" if is_unreliable(lead) else change(lead)
        return (
            f"{plan}; the stored plan is not shown to be faster: they were not told apart "
            f"({by}, {_certainty(sure)} sure that it is {word}){how}"
        )
    if is_unreliable(lead):
        return f"{plan}; the stored plan is {word}, by how much is not known{how}"
    return (
        f"{plan}; the stored plan is {100 * abs(lead.median - 1):.1f} % "
        f"{word} ({_change_range(lead)}), {_certainty(sure)} sure{how}"
    )


def plan_sentences(worth: PlanWorth | None, cost: InputCost | None) -> list[str]:
    """Say what the trials and the data of a plan show, as far as these are known."""
    said = [] if worth is None else worth_sentences(worth)
    return [*said, *([] if cost is None else input_lines(cost))]


def worth_title(worth: PlanWorth | None) -> str:
    """Give a heading that claims no more than the runner-up's interval shows."""
    lead = None if worth is None or worth.runner_up is None else worth.runner_up.lead
    if lead is None:
        return "What it is worth"
    if lead.low > 1:
        return "Why it wins, and what it is worth"
    if lead.high < 1:
        return "Another plan was faster: what this one is worth"
    return "Not shown to be the fastest: what it is worth"


def is_doubtful(worth: PlanWorth | None) -> bool:
    """Whether another plan of the search looks faster, so that a new search is due."""
    return worth is not None and worth.runner_up is not None and worth.runner_up.lead.median < 1


def known_variations(worth: PlanWorth) -> list[Variation]:
    """Give the variations of which something is known."""
    return [one for one in worth.variations if one.speed is not None]


def part_row(part: StepPart, worth: PlanWorth) -> Row:
    """Give a part of a step as a row."""
    return {
        "part": part.name,
        "time": format_seconds(part.time_s),
        "share": f"{100 * part.time_s / worth.step_s:.0f} %",
        "source": f"at least {part.source}" if part.is_floor else part.source,
    }


def baseline_row(one: KnownBaseline) -> Row:
    """Give a baseline as a row."""
    return {
        "name": one.name,
        "rate": format_interval(one.throughput_samples_per_s),
        "speedup": ("" if one.in_turns else "~") + format_range(one.speedup),
        "paid": _describe_payoff(one),
    }


def _describe_payoff(one: KnownBaseline) -> str:
    """Say after how much training what tuning took is saved, by all that the speedup may be."""
    epochs, saved_s = one.epochs_until_paid, one.training_until_paid_s
    if epochs is not None and (range_ := one.epochs_range()) is not None:
        if range_[1] < 1:
            return "less than one epoch"
        return f"{_count(epochs)} epochs ({' to '.join(map(_count, range_))})"
    if saved_s is None or (range_ := one.training_range()) is None:
        return "never"
    ends = " to ".join(  # the samples of a script are not known
        "never" if math.isinf(end_s) else format_duration(end_s) for end_s in range_
    )
    return f"{format_duration(saved_s)} of training ({ends})"


def _count(epochs: float) -> str:
    if math.isinf(epochs):
        return "never"
    return f"{epochs:.1f}" if epochs < 10 else f"{epochs:.0f}"


def variation_row(one: Variation) -> Row:
    """Give a variation as a row."""
    return {
        "setting": one.setting,
        "value": one.value,
        "other": one.other,
        "speed": "" if one.speed is None else change(one.speed),
        "basis": one.basis.value,
    }


def batch_row(one: BatchChoice) -> Row:
    """Give what a batch would mean as a row."""
    return {
        "batch": str(one.node_batch),
        "rate": format_number(one.samples_per_s),
        "worth": with_ends(one.worth, one.worth_ci_low, one.worth_ci_high),
        "time": with_ends(one.time_to_loss, one.time_to_loss_ci_low, one.time_to_loss_ci_high),
    }


def _describe_advice(advice: BatchAdvice) -> str:
    """Say where the noise scale is from, and which batch would be soonest at a loss."""
    noise = advice.measured.noise
    doubt = "" if noise.caveat is None else f", not reliable with {noise.caveat}"
    sooner = [one for one in advice.choices if one.time_to_loss_ci_high < 1]
    best = min(sooner, key=lambda one: one.time_to_loss, default=None)
    return (
        f"{noise_span(noise).rstrip('?')} samples {advice.measured.where}{doubt}; "
        f"with learning rate scaling {advice.lr_scaling} "
        + (
            "no other batch is shown to be sooner at a loss than the plan's"
            if best is None
            else f"a batch of {best.node_batch} is soonest at a loss"
        )
    )


def change(ratio: Interval) -> str:
    """Write a ratio as a change, with its interval where it has one: ``-1.4 % (-2.0 to -0.8)``."""
    text = f"{100 * (ratio.median - 1):+.1f} %"
    return text if ratio.low == ratio.high else f"{text} ({_change_range(ratio)})"


def _change_range(ratio: Interval) -> str:
    """Write the ends of a ratio's interval as changes in percent."""
    return f"{100 * (ratio.low - 1):+.1f} to {100 * (ratio.high - 1):+.1f}"


def _certainty(probability: float) -> str:
    return "more than 99 %" if probability > 0.99 else f"{100 * probability:.0f} %"
