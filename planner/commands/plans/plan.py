"""The commands ``ddlplan plans show``, ``best``, ``compare`` and ``export``, of one plan or two.

Apart from the lists, which come without the modules of figures, advice and scripts.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from planner.api import plans
from planner.api.plans import FoundPlan
from planner.exports.formats import JSON, export_document, find_format, unsaid
from planner.input_cost.lines import input_json, input_lines
from planner.report.comparison import PlanComparison, comparison_text
from planner.report.output import Output
from planner.report.page.files import write_page
from planner.report.page.plan import plan_page
from planner.report.plans import plan_text
from planner.report.table import Terminal
from planner.report.worth import worth_text


def show_plan(db: str, out: Output, plan_id: int, html: Path | None) -> None:
    """Show one plan with its evidence, and write a page of it where a file is named."""
    found = plans.get(plan_id, db=db)
    if html is not None:
        known = found.trials, found.worth, found.input
        write_page(html, plan_page(found.stored, found.stale_reasons, *known))
        out.note(f"wrote {html}")
    _show_one(found, out)


def show_best(db: str, out: Output, use_case: str, node: str | None, data: Path | None) -> None:
    """Show the plan that would be launched: here, or on the node that is named."""
    _show_one(plans.find_best(use_case, node, data=data, db=db), out)


def _show_one(found: FoundPlan, out: Output) -> None:
    out.write_text(lambda terminal: _draw(found, terminal))
    worth = found.worth and found.worth.to_json()
    cost = found.input and input_json(found.input)
    out.finish({**found.stored.to_json(stale=found.is_stale), "worth": worth, "input_cost": cost})


def _draw(found: FoundPlan, terminal: Terminal) -> str:
    text = plan_text(found.stored, found.stale_reasons, found.trials, terminal)
    text += worth_text(found.worth, terminal) if found.worth else ""
    if found.input is not None:
        text += "".join(f"\n{line}" for line in input_lines(found.input)) + "\n"
    return text


def compare(db: str, out: Output, first_id: int, second_id: int) -> None:
    """Show how two plans differ."""
    first, second = plans.get(first_id, db=db), plans.get(second_id, db=db)
    comparison = PlanComparison(first.stored, second.stored)
    for warning in comparison.warnings:
        out.warn(warning)
    out.write_text(lambda terminal: comparison_text(comparison, terminal))
    out.finish(comparison.to_json(first_stale=first.is_stale, second_stale=second.is_stale))


def export(db: str, out: Output, plan_id: int, format_name: str) -> None:
    """Write a plan as JSON, which ``plans import`` reads, or as what runs without ddlplan."""
    chosen = find_format(format_name)
    found = plans.get(plan_id, db=db)
    document = export_document(found.stored, chosen, found.stale_reasons)
    for warning in unsaid(found.stored, chosen):
        out.warn(warning)
    if not out.as_json:
        whole = json.dumps(document, indent=2, allow_nan=False) + "\n"
        sys.stdout.write(whole if chosen == JSON else document["text"])
    out.finish(document)
