"""Page of a stored plan: what `plans show` says, with plots."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from planner.plans.stored_plan import StoredPlan
from planner.quantities import format_interval, format_number, printable
from planner.report.page.charts import Curve, Mark, bar_chart, line_chart, point_chart
from planner.report.plan_line import describe_plan
from planner.report.plans import plan_facts
from planner.report.worth import (
    baseline_row,
    change,
    format_seconds,
    known_variations,
    worth_facts,
)
from planner.tuning.study import StoredTrial
from planner.worth.variations import Basis
from planner.worth.worth import DEFAULTS, PlanWorth

_STYLE = """
:root { color-scheme: light dark; --paper: #ffffff; --ink: #1a1d21; --soft: #5b6470;
  --grid: #e3e6ea; --line: #9aa3ad; --main: #2563b8; --other: #a9b4c0; }
@media (prefers-color-scheme: dark) { :root { --paper: #15181c; --ink: #e8eaed; --soft: #a3abb5;
  --grid: #2a2f36; --line: #6b7480; --main: #6ea8f2; --other: #56616d; } }
body { background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif;
  margin: 2rem auto; max-width: 52rem; padding: 0 1rem; }
h1 { font-size: 1.35rem; margin-bottom: 0; } h2 { font-size: 1.05rem; margin: 2.2rem 0 .3rem; }
p { margin: .3rem 0; } .soft { color: var(--soft); }
svg { display: block; height: auto; width: 100%; margin-top: .5rem; }
svg text { fill: var(--ink); font: 12px system-ui, sans-serif; }
svg .label { text-anchor: end; } svg .label.main { font-weight: 600; }
svg .tick { fill: var(--soft); font-size: 11px; text-anchor: middle; }
svg .tick.end { text-anchor: end; } svg .unit { fill: var(--soft); font-size: 11px; }
svg .value { fill: var(--soft); } svg .grid { stroke: var(--grid); }
svg .axis { stroke: var(--line); }
svg .zero { stroke: var(--line); stroke-width: 1.5; }
svg .whisker { stroke: var(--ink); stroke-width: 1.2; }
svg .main { fill: var(--main); } svg .other { fill: var(--other); }
svg .label.main { fill: var(--ink); }
svg .model { fill: var(--paper); stroke: var(--main); stroke-width: 1.5; }
svg .curve { fill: none; stroke-width: 2; } svg .curve.main { stroke: var(--main); }
svg .curve.other { stroke: var(--line); }
table { border-collapse: collapse; } td { padding: .1rem 1.2rem .1rem 0; vertical-align: top; }
td:first-child { color: var(--soft); white-space: nowrap; } td + td { overflow-wrap: anywhere; }
"""


def plan_page(
    stored: StoredPlan,
    reasons: Sequence[str],
    trials: Sequence[StoredTrial],
    worth: PlanWorth | None,
) -> str:
    """Give a plan with its evidence as one HTML document.

    Args:
        stored: The plan.
        reasons: Why it is stale; empty where it is not.
        trials: Those of its study.
        worth: What the trials say about it, where they are on record.
    """
    title = f"Plan {stored.id}: {stored.use_case} on {stored.node}"
    rate = format_interval(stored.throughput_samples_per_s)
    speedup = (
        "" if stored.speedup is None else f", {format_interval(stored.speedup)} times its baseline"
    )
    facts = "".join(
        f"<tr><td>{_text(name)}</td><td>{_text(value)}</td></tr>"
        for name, value in plan_facts(stored, reasons, trials)
    )
    sections = "" if worth is None else "".join(_sections(stored, worth))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{_text(title)}</title><style>{_STYLE}</style></head><body>"
        f"<h1>{_text(title)}</h1>"
        f"<p>{_text(describe_plan(stored.plan))}</p><p>{_text(rate)} samples/s{_text(speedup)} "
        '<span class="soft">(± is the 95 % interval)</span></p>'
        f"{sections}<h2>All settings and evidence</h2><table>{facts}</table></body></html>\n"
    )


def _sections(stored: StoredPlan, worth: PlanWorth) -> Iterator[str]:
    yield _section("Speed against the baselines", _rates(stored, worth), _says(worth))
    if worth.step_parts:
        yield _section("Where a step's time goes", _parts(worth), _step_words(worth))
    if known_variations(worth):
        yield _section("One setting changed", _variations(worth), _VARIATION_WORDS)
    if curves := _payoff(worth):
        yield _section("When tuning has paid", curves, _PAYOFF_WORDS)


def _section(title: str, chart: str, words: str) -> str:
    return f"<h2>{_text(title)}</h2>{words}{chart}"


def _rates(stored: StoredPlan, worth: PlanWorth) -> str:
    rate = stored.throughput_samples_per_s
    marks = [
        Mark(
            label="this plan",
            value=rate.median,
            low=rate.low,
            high=rate.high,
            text=format_interval(rate),
            is_main=True,
        )
    ]
    for one in worth.baselines:
        rate = one.throughput_samples_per_s
        text = f"{format_interval(rate)}; {format_number(one.speedup.median)} x"
        marks.append(
            Mark(label=one.name, value=rate.median, low=rate.low, high=rate.high, text=text)
        )
    return bar_chart(
        marks, title="samples per second of this plan and its baselines", unit="samples/s"
    )


def _says(worth: PlanWorth) -> str:
    lines = [f"{name}: {value}" for name, value in worth_facts(worth) if name != "not tried"]
    paid = [
        f"{epochs} against {one.name}"
        for one in worth.baselines
        if (epochs := baseline_row(one)["paid"])
    ]
    if paid:
        lines.append(f"tuning has paid after {', '.join(paid)}")
    return "".join(f"<p>{_text(line[0].upper() + line[1:])}.</p>" for line in lines)


def _parts(worth: PlanWorth) -> str:
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
    return bar_chart(marks, title="parts of a step's time", unit="ms")


def _step_words(worth: PlanWorth) -> str:
    floors = "; ".join(f"{one.name}: {one.source}" for one in worth.step_parts if one.is_floor)
    words = f"A step takes {format_seconds(worth.step_s)}."
    if floors:
        words += f" Hollow bars show the least that a part can take ({floors})."
    return f'<p class="soft">{_text(words)}</p>'


def _variations(worth: PlanWorth) -> str:
    marks = [
        Mark(
            label=f"{one.setting} → {one.other}",
            value=100 * (one.speed.median - 1),
            low=100 * (one.speed.low - 1),
            high=100 * (one.speed.high - 1),
            text=change(one.speed).partition(" (")[0]
            + ("" if one.basis is Basis.MEASURED else f", {one.basis}"),
            is_model=one.basis is not Basis.MEASURED,
        )
        for one in known_variations(worth)
        if one.speed is not None
    ]
    return point_chart(
        marks, title="change of samples per second with one setting changed", unit="% of samples/s"
    )


_VARIATION_WORDS = (
    '<p class="soft">Change of samples/s against this plan, with its 95 % interval where both were '
    "measured. Hollow points are from a model.</p>"
)
_PAYOFF_WORDS = (
    '<p class="soft">Time since tuning began, over the epochs trained. Where the lines cross, '
    "tuning has paid.</p>"
)


def _payoff(worth: PlanWorth) -> str:
    """Draw time over epochs with this plan, tuning included, and with the defaults."""
    known = {one.name: one for one in worth.baselines if one.epochs_until_paid is not None}
    one = known.get(DEFAULTS) or next(iter(known.values()), None)
    if one is None or one.epochs_until_paid is None:
        return ""
    paid, speedup = one.epochs_until_paid, one.speedup.median
    # What tuning took is saved after `paid` epochs: they last so much less with the plan.
    epoch_s = worth.tuning_s / (paid * (1 - 1 / speedup))
    last = 2.0 * paid
    minutes = [
        (one.name, 0.0, epoch_s, False),
        ("tuning, then this plan", worth.tuning_s, epoch_s / speedup, True),
    ]
    curves = [
        Curve(
            label=name,
            points=[(0.0, start_s / 60), (last, (start_s + last * each_s) / 60)],
            is_main=is_main,
        )
        for name, start_s, each_s, is_main in minutes
    ]
    return line_chart(
        curves, title="time over epochs", x_title="epochs", y_title="minutes since tuning began"
    )


def _text(text: str) -> str:
    return escape(printable(text))
