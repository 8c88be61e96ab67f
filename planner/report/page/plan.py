"""Page of a stored plan: what `plans show` says, with plots."""

from __future__ import annotations

from collections.abc import Sequence

from planner.input_cost.epochs import InputCost
from planner.plans.stored_plan import StoredPlan
from planner.quantities import format_interval
from planner.report.figures.figure import escaped, figures_html
from planner.report.figures.plan_figures import plan_figures
from planner.report.page.document import facts_html, page_document
from planner.report.plan_line import describe_plan
from planner.report.plans import plan_facts
from planner.report.worth import plan_sentences, worth_facts
from planner.scripts.naming import describe_trained
from planner.tuning.study import StoredTrial
from planner.worth.worth import PlanWorth


def plan_page(
    stored: StoredPlan,
    reasons: Sequence[str],
    trials: Sequence[StoredTrial],
    worth: PlanWorth | None,
    cost: InputCost | None = None,
) -> str:
    """Give a plan with its evidence as one HTML document; ``reasons`` say why it is stale."""
    title = f"Plan {stored.id}: {describe_trained(stored.use_case)} on {stored.node}"
    rate = format_interval(stored.throughput_samples_per_s)
    speedup = (
        "" if stored.speedup is None else f", {format_interval(stored.speedup)} times its baseline"
    )
    said = "".join(f"<p>{escaped(one)}</p>" for one in plan_sentences(worth, cost))
    figures = figures_html(plan_figures(stored, worth), "figure")
    known = [] if worth is None else worth_facts(worth)
    untried = [text for name, text in known if name == "not tried"]
    figures += "".join(f'<p class="soft">Not tried: {escaped(text)}.</p>' for text in untried)
    facts = facts_html(plan_facts(stored, reasons, trials))
    return page_document(
        title,
        f"<h1>{escaped(title)}</h1>"
        f"<p>{escaped(describe_plan(stored.plan))}</p>"
        f"<p>{escaped(rate)} samples/s{escaped(speedup)} "
        '<span class="soft">(± and ranges in brackets are 95 % intervals)</span></p>'
        f"{said}{figures}<h2>All settings and evidence</h2>{facts}",
    )
