"""Plan: why it wins, where its step's time goes, its neighbours, its worth, and its exports."""

from __future__ import annotations

import json

from launch.errors import LaunchError
from planner.api import plans
from planner.api.plans import FoundPlan
from planner.errors import UsageError
from planner.exports.formats import FILE_NAMES, TEXT_FORMATS, export_text
from planner.exports.head import settings_of_script
from planner.report.figures.plan_figures import plan_figures
from planner.report.plans import plan_facts
from planner.report.worth import is_doubtful, plan_sentences, worth_facts, worth_title
from planner.scripts.naming import command_for, describe_trained
from planner.service.pages.actions import launch_form, remove_form
from planner.service.pages.view import (
    Context,
    PageRequest,
    View,
    data_options,
    reasons_here,
    search_options,
)


def show(request: PageRequest, context: Context) -> View:
    """Show one plan."""
    plan_id = request.numbers["id"]
    found = plans.get(plan_id, db=context.db)
    stored, worth = found.stored, found.worth
    facts = [] if worth is None else worth_facts(worth)
    allow = ["--allow-stale"] if found.is_stale else []
    data = data_options(found.data)
    return View(
        template="plan.html",
        title=f"Plan {stored.id}: {stored.use_case} on {stored.node}",
        values={
            "found": found,
            "one": stored,
            "trained": describe_trained(stored.use_case),
            "sentences": plan_sentences(worth, found.input),
            "not_tried": [text for name, text in facts if name == "not tried"],
            "figures": plan_figures(stored, worth),
            "facts": plan_facts(stored, reasons_here(found.stale_reasons), found.trials),
            "why_title": worth_title(worth),
            "is_doubtful": is_doubtful(worth),
            **_exports(found),
            "file_names": FILE_NAMES,
            "script_settings": settings_of_script(stored.plan),
            "document": json.dumps(stored.to_json(stale=found.is_stale), indent=2),
            "command": context.command_on(
                stored.node,
                command_for(stored.use_case, "launch", *data, "--plan", str(plan_id), *allow),
            ),
            "search_again": context.command_on(
                stored.node,
                command_for(
                    stored.use_case, "tune", *search_options(found.data, found.precision, stored)
                ),
            ),
            "launch_forms": launch_form(found, context),
            "remove_forms": remove_form(plan_id, context),
        },
        topics=[f"plan:{plan_id}"],
    )


def _exports(found: FoundPlan) -> dict[str, object]:
    """Give the plan in each format, or why it runs nowhere without ddlplan."""
    try:
        texts = [
            (name, export_text(found.stored, name, found.stale_reasons).rstrip())
            for name in TEXT_FORMATS
        ]
    except (UsageError, LaunchError) as error:  # it changes the script itself, or has no command
        return {"exports": [], "no_exports": str(error)}
    return {"exports": texts, "no_exports": None}
