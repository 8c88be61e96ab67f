"""The commands ``ddlplan plans`` and ``ddlplan trials``."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from planner.api import plans
from planner.api.plans import FoundPlan
from planner.errors import NoDatabaseError
from planner.exports.formats import JSON, export_commands, export_text, find_format
from planner.input_cost.lines import input_json, input_lines
from planner.report.comparison import compare as compare_plans
from planner.report.comparison import comparison_text
from planner.report.output import Output
from planner.report.page.files import write_page
from planner.report.page.plan import plan_page
from planner.report.plans import plan_text, plans_csv, plans_table
from planner.report.table import Terminal, detect_terminal
from planner.report.trials import trial_json, trials_csv, trials_table
from planner.report.worth import worth_text
from planner.tuning.study import StoredTrial


def list_plans(
    db: str, out: Output, use_case: str | None, node: str | None, *, as_csv: bool
) -> None:
    """Show the stored plans. Where nothing was tuned yet there are none, which is no error."""
    found: list[FoundPlan] = []
    with _missing_as_empty(out):
        found = plans.find(use_case, node, db=db)
        if not found:
            out.note("no plans: ddlplan tune finds one")
    judged = [(plan.stored, plan.stale_reasons) for plan in found]
    if as_csv:
        sys.stdout.write(plans_csv(judged))
    elif judged:
        _show(out, plans_table(judged, _terminal()))
    # Of hundreds of plans that takes as long as their table.
    every = found if out.as_json else ()
    out.finish([plan.stored.to_json(stale=plan.is_stale) for plan in every])


def show_trials(
    db: str, out: Output, use_case: str | None, node: str | None, *, as_csv: bool
) -> None:
    """Show every trial. Where nothing was tuned yet there are none, which is no error."""
    trials: Sequence[StoredTrial] = []
    with _missing_as_empty(out):
        trials = plans.find_trials(use_case, node, db=db)
        if not trials:
            out.note("no trials: ddlplan tune makes some")
    if as_csv:
        sys.stdout.write(trials_csv(trials))
    elif trials:
        _show(out, trials_table(trials, _terminal()))
    out.finish([trial_json(trial) for trial in (trials if out.as_json else ())])


def show_plan(db: str, out: Output, plan_id: int, html: Path | None = None) -> None:
    """Show one plan with its evidence, and write a page of it where a file is named."""
    found = plans.get(plan_id, db=db)
    if html is not None:
        known = found.trials, found.worth, found.input
        write_page(html, plan_page(found.stored, found.stale_reasons, *known))
        out.note(f"wrote {html}")
    _show_one(found, out)


def show_best(db: str, out: Output, use_case: str, node: str | None) -> None:
    """Show the plan that would be launched: here, or on the node that is named."""
    _show_one(plans.find_best(use_case, node, db=db), out)


def _show_one(found: FoundPlan, out: Output) -> None:
    terminal = _terminal()
    text = plan_text(found.stored, found.stale_reasons, found.trials, terminal)
    text += worth_text(found.worth, terminal) if found.worth else ""
    if found.input is not None:
        text += "".join(f"\n{line}" for line in input_lines(found.input)) + "\n"
    _show(out, text)
    worth = found.worth and found.worth.to_json()
    cost = found.input and input_json(found.input)
    out.finish({**found.stored.to_json(stale=found.is_stale), "worth": worth, "input_cost": cost})


def compare(db: str, out: Output, first_id: int, second_id: int) -> None:
    """Show how two plans differ."""
    first, second = plans.get(first_id, db=db), plans.get(second_id, db=db)
    comparison = compare_plans(first.stored, second.stored)
    for warning in comparison.warnings:
        out.warn(warning)
    _show(out, comparison_text(comparison, _terminal()))
    out.finish(comparison.to_json(first_stale=first.is_stale, second_stale=second.is_stale))


def export(db: str, out: Output, plan_id: int, format_name: str) -> None:
    """Write a plan as JSON, which ``plans import`` reads, or as what runs without ddlplan."""
    chosen = find_format(format_name)
    found = plans.get(plan_id, db=db)
    document: dict[str, Any] = found.stored.to_json(stale=found.is_stale)
    if chosen == JSON:
        document["commands"] = export_commands(found.stored)
        text = json.dumps(document, indent=2, allow_nan=False) + "\n"
    else:
        text = export_text(found.stored, chosen, found.stale_reasons)
        document = {"id": plan_id, "format": chosen, "text": text}
    if not out.as_json:
        sys.stdout.write(text)
    out.finish(document)


def import_plan(db: str, out: Output, file: Path) -> None:
    """Store a plan from a file."""
    found = plans.import_file(file, db=db)
    out.write_line(f"stored plan {found.stored.id}")
    out.finish(found.stored.to_json(stale=found.is_stale))


def remove(db: str, out: Output, plan_id: int) -> None:
    """Remove a plan."""
    plans.remove(plan_id, db=db)
    out.write_line(f"removed plan {plan_id}")
    out.finish({"id": plan_id})


@contextmanager
def _missing_as_empty(out: Output) -> Iterator[None]:
    """Let a database that is missing count as an empty one, but say so: it may be mistyped."""
    try:
        yield
    except NoDatabaseError as error:
        out.warn(str(error))


def _terminal() -> Terminal:
    return detect_terminal(sys.stdout, os.environ)


def _show(out: Output, text: str) -> None:
    if not out.as_json:
        sys.stdout.write(text)
