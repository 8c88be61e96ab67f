"""Page of a stored plan: what `plans show` says, with plots."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib.resources import files

from planner.plans.stored_plan import StoredPlan
from planner.quantities import format_interval, printable
from planner.report.figures.figure import figure_html
from planner.report.figures.plan_figures import plan_figures
from planner.report.plan_line import describe_plan
from planner.report.plans import plan_facts
from planner.report.worth import worth_sentences
from planner.tuning.study import StoredTrial
from planner.worth.worth import PlanWorth

_STYLE = """
body { background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif;
  margin: 2rem auto; max-width: 52rem; padding: 0 1rem; }
h1 { font-size: 1.35rem; margin-bottom: 0; } h2 { font-size: 1.05rem; margin: 2.2rem 0 .3rem; }
p { margin: .3rem 0; } .soft { color: var(--soft); }
figure { margin-top: 2rem; } .facts td { padding: .1rem 1.2rem .1rem 0; border: 0;
  vertical-align: top; } .facts td:first-child { color: var(--soft); white-space: nowrap; }
.facts td + td { overflow-wrap: anywhere; }
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
    said = "" if worth is None else "".join(f"<p>{_text(s)}</p>" for s in worth_sentences(worth))
    figures = "".join(
        figure_html(figure, f"figure-{number}")
        for number, figure in enumerate(plan_figures(stored, worth), 1)
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{_text(title)}</title><style>{_colours()}{_STYLE}</style></head><body>"
        f"<h1>{_text(title)}</h1>"
        f"<p>{_text(describe_plan(stored.plan))}</p><p>{_text(rate)} samples/s{_text(speedup)} "
        '<span class="soft">(± and ranges in brackets are 95 % intervals)</span></p>'
        f'{said}{figures}<h2>All settings and evidence</h2><table class="facts">{facts}</table>'
        "</body></html>\n"
    )


def _colours() -> str:
    return files("planner.report").joinpath("figures/figures.css").read_text(encoding="utf-8")


def _text(text: str) -> str:
    return escape(printable(text))
