"""Figures of a plan: its rate beside its baselines, its step, its neighbours, when it has paid."""

from __future__ import annotations

from collections.abc import Sequence

from planner.plans.stored_plan import StoredPlan
from planner.quantities import format_interval, format_number, format_seconds
from planner.report.figures.curves import Curve, line_plot
from planner.report.figures.figure import Figure, drawn_figures
from planner.report.figures.rows import Mark, bar_plot, change_mark, point_plot, rate_mark
from planner.report.worth import (
    baseline_row,
    batch_row,
    known_variations,
    part_row,
    variation_row,
)
from planner.scripts.naming import describe_trained
from planner.worth.variations import Basis
from planner.worth.worth import DEFAULTS, PlanWorth


def _rates_figure(stored: StoredPlan, worth: PlanWorth) -> Figure:
    """Show samples per second of a plan and of what it is held against."""
    marks = [rate_mark("this plan", stored.throughput_samples_per_s, is_main=True)]
    for one in worth.baselines:
        rate = one.throughput_samples_per_s
        text = f"{format_interval(rate)}; {format_number(one.speedup.median)} x"
        marks.append(rate_mark(one.name, rate, text))
    rows = [baseline_row(one) for one in worth.baselines]
    return Figure(
        title="Speed against the baselines",
        svg=bar_plot(
            marks, title="samples per second of this plan and its baselines", unit="samples/s"
        ),
        columns=("plan", "samples/s", "speedup of this plan", "tuning has paid after"),
        rows=[
            ("this plan", format_interval(stored.throughput_samples_per_s), "", ""),
            *((row["name"], row["rate"], row["speedup"], row["paid"]) for row in rows),
        ],
    )


def _parts_figure(worth: PlanWorth) -> Figure | None:
    """Show where a step's time goes; ``None`` where that is not known."""
    if not worth.step_parts:
        return None
    marks = [
        Mark(
            label=part.name,
            value=1000 * part.time_s,
            text=f"{format_seconds(part.time_s)}, {100 * part.time_s / worth.step_s:.0f} %",
            is_main=not part.is_floor,
            is_model=part.is_floor,
        )
        for part in worth.step_parts
    ]
    rows = [part_row(part, worth) for part in worth.step_parts]
    floors = "; ".join(f"{one.name}: {one.source}" for one in worth.step_parts if one.is_floor)
    return Figure(
        title=f"Where a step's {format_seconds(worth.step_s)} go",
        svg=bar_plot(marks, title="parts of a step's time", unit="ms"),
        columns=("part of a step", "time", "share", "from"),
        rows=[(row["part"], row["time"], row["share"], row["source"]) for row in rows],
        note=f"Hollow bars show the least that a part can take ({floors})." if floors else "",
    )


def _variations_figure(worth: PlanWorth) -> Figure | None:
    """Show what one other setting does to the speed; ``None`` where that is not known."""
    known = known_variations(worth)
    if not known:
        return None
    marks = [
        change_mark(
            f"{one.setting} → {one.other}",
            one.speed,
            "" if one.basis is Basis.MEASURED else f", {one.basis}",
            is_model=one.basis is not Basis.MEASURED,
        )
        for one in known
        if one.speed is not None
    ]
    rows = [variation_row(one) for one in known]
    return Figure(
        title="One setting changed",
        svg=point_plot(
            marks,
            title="change of samples per second with one setting changed",
            unit="% of samples/s",
        ),
        columns=("setting", "here", "other", "speed of other", "from"),
        rows=[
            tuple(row[k] for k in ("setting", "value", "other", "speed", "basis")) for row in rows
        ],
        note="Change of samples/s against this plan, from trials of both where they "
        "were measured, with a 95 % interval; hollow points are derived from others. The page of "
        "the study has a model of all its trials, which may differ: trust what was measured "
        "first.",
    )


def _payoff_figure(worth: PlanWorth) -> Figure | None:
    """Show time over epochs with this plan, tuning included, and with the defaults."""
    known = {one.name: one for one in worth.baselines if one.epochs_until_paid is not None}
    one = known.get(DEFAULTS) or next(iter(known.values()), None)
    if one is None or not one.epochs_until_paid:
        return None
    paid, speedup = one.epochs_until_paid, one.speedup.median
    # What tuning took is saved after `paid` epochs: they last so much less with the plan.
    epoch_s = worth.tuning_s / (paid * (1 - 1 / speedup))
    last = 2.0 * paid
    minutes = [
        ("tuning, then this plan", worth.tuning_s, epoch_s / speedup),
        (one.name, 0.0, epoch_s),
    ]
    curves = [
        Curve(
            label=name,
            points=[(0.0, start_s / 60), (last, (start_s + last * each_s) / 60)],
        )
        for name, start_s, each_s in minutes
    ]
    return Figure(
        title="When tuning has paid",
        svg=line_plot(
            curves, title="time over epochs", x_title="epochs", y_title="minutes since tuning began"
        ),
        columns=("epochs", *(name for name, _, _ in minutes)),
        rows=[
            (
                format_number(epochs),
                *(f"{(start_s + epochs * each_s) / 60:.1f} min" for _, start_s, each_s in minutes),
            )
            for epochs in (0.0, paid, last)
        ],
        note="Time since tuning began, over the epochs trained. Where the lines cross, tuning has "
        f"paid: after {baseline_row(one)['paid']}, with the 95 % interval of the speedup.",
    )


def _batches_figure(stored: StoredPlan, worth: PlanWorth) -> Figure | None:
    """Show the time to a loss with other batches; ``None`` where that is not known."""
    if worth.batches is None:
        return None
    choices = worth.batches.choices
    rows = [batch_row(one) for one in choices]
    marks = [
        Mark(
            label=f"batch {one.node_batch}",
            value=one.time_to_loss,
            low=one.time_to_loss_ci_low,
            high=one.time_to_loss_ci_high,
            text=row["time"],
            is_main=one.node_batch == stored.plan.node_batch,
            is_model=one.node_batch != stored.plan.node_batch,
        )
        for one, row in zip(choices, rows, strict=True)
    ]
    return Figure(
        title="Other batches",
        svg=bar_plot(
            marks, title="time to a loss with other batches", unit="of this plan's time to a loss"
        ),
        columns=("batch", "samples/s", "worth of a sample", "time to a loss / this plan's"),
        rows=[tuple(row[k] for k in ("batch", "rate", "worth", "time")) for row in rows],
        note="By the line through its step times and the noise scale of its gradients, "
        "with 95 % intervals.",
    )


def compared_plans_figure(plans: Sequence[StoredPlan]) -> Figure:
    """Show samples per second of several plans."""
    fastest = max(plan.throughput_samples_per_s.median for plan in plans)
    marks = [
        rate_mark(
            f"plan {plan.id}: {describe_trained(plan.use_case)} on {plan.node}",
            plan.throughput_samples_per_s,
            is_main=plan.throughput_samples_per_s.median == fastest,
        )
        for plan in plans
    ]
    return Figure(
        title="Samples per second",
        svg=bar_plot(marks, title="samples per second of the plans", unit="samples/s"),
        columns=("plan", "use case", "machine", "samples/s", "times PyTorch's defaults"),
        rows=[
            (
                str(plan.id),
                plan.use_case,
                plan.node,
                format_interval(plan.throughput_samples_per_s),
                format_interval(plan.speedup),
            )
            for plan in plans
        ],
        note="With 95 % intervals.",
    )


def plan_figures(stored: StoredPlan, worth: PlanWorth | None) -> list[Figure]:
    """Give every figure of a plan that can be drawn."""
    if worth is None:
        return []
    return drawn_figures(
        _rates_figure(stored, worth),
        _parts_figure(worth),
        _variations_figure(worth),
        _batches_figure(stored, worth),
        _payoff_figure(worth),
    )
