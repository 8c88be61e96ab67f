"""Plan: why it wins, where its step's time goes, its neighbours, its worth, and its exports."""

from __future__ import annotations

import json
import shlex

from planner.api import plans
from planner.exports.formats import FILE_NAMES, TEXT_FORMATS, export_text
from planner.exports.head import settings_of_script
from planner.plans.stored_plan import StoredPlan
from planner.report.figures.plan_figures import plan_figures
from planner.report.plans import plan_facts
from planner.report.worth import is_doubtful, worth_facts, worth_sentences, worth_title
from planner.service.pages.actions import launch_form, remove_form
from planner.service.pages.view import Context, PageRequest, View, reasons_here


def show(request: PageRequest, context: Context) -> View:
    """Show one plan."""
    plan_id = request.numbers["id"]
    found = plans.get(plan_id, db=context.db)
    stored, worth = found.stored, found.worth
    use_case = shlex.quote(stored.use_case)
    launch = f"ddlplan launch --use-case {use_case} --plan {plan_id}"
    return View(
        template="plan.html",
        title=f"Plan {stored.id}: {stored.use_case} on {stored.node}",
        values={
            "found": found,
            "one": stored,
            "sentences": [] if worth is None else worth_sentences(worth),
            "not_tried": [] if worth is None else _not_tried(dict(worth_facts(worth))),
            "figures": plan_figures(stored, worth),
            "facts": plan_facts(stored, reasons_here(found.stale_reasons), found.trials),
            "why_title": worth_title(worth),
            "is_doubtful": is_doubtful(worth),
            "exports": [
                (name, export_text(stored, name, found.stale_reasons).rstrip())
                for name in TEXT_FORMATS
            ],
            "file_names": FILE_NAMES,
            "script_settings": settings_of_script(stored.plan),
            "document": json.dumps(stored.to_json(stale=found.is_stale), indent=2),
            "command": f"{launch} --allow-stale" if found.is_stale else launch,
            "search_again": f"ddlplan tune --use-case {use_case}",
            "launch_forms": launch_form(stored.use_case, plan_id, context, is_stale=found.is_stale),
            "remove_forms": remove_form(plan_id, context),
            "baseline_words": _baseline_words(stored),
        },
        topics=[f"plan:{plan_id}"],
    )


def _not_tried(facts: dict[str, str]) -> list[str]:
    return [text for name, text in facts.items() if name == "not tried"]


def _baseline_words(stored: StoredPlan) -> str:
    """Say what the speedup refers to."""
    if stored.baseline is None:
        return ""
    return f"PyTorch's defaults: {stored.baseline.strategy}, batch {stored.baseline.node_batch}"
