"""The commands that list, import and remove plans, and ``ddlplan trials``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from planner.api import plans
from planner.api.plans import FoundPlan
from planner.report.output import Output
from planner.report.plans import plans_csv, plans_table
from planner.report.trials import trial_json, trials_csv, trials_table
from planner.tuning.study import StoredTrial


def list_plans(db: str, out: Output, use_case: str | None, node: str | None) -> None:
    """Show the stored plans. Where nothing was tuned yet there are none, which is no error."""
    found: list[FoundPlan] = []
    with out.missing_as_empty():
        # The table shows neither step times nor comparisons.
        found = plans.find(use_case, node, brief=not (out.as_csv or out.as_json), db=db)
        if not found:
            out.note("no plans: ddlplan tune finds one")
    judged = [(plan.stored, plan.stale_reasons) for plan in found]
    out.write_text_or_csv(lambda terminal: plans_table(judged, terminal), lambda: plans_csv(judged))
    # Of hundreds of plans that takes as long as their table.
    every = found if out.as_json else ()
    out.finish([plan.stored.to_json(stale=plan.is_stale) for plan in every])


def show_trials(db: str, out: Output, use_case: str | None, node: str | None) -> None:
    """Show every trial. Where nothing was tuned yet there are none, which is no error."""
    trials: Sequence[StoredTrial] = []
    with out.missing_as_empty():
        trials = plans.find_trials(use_case, node, db=db)
        if not trials:
            out.note("no trials: ddlplan tune makes some")
    out.write_text_or_csv(
        lambda terminal: trials_table(trials, terminal), lambda: trials_csv(trials)
    )
    out.finish([trial_json(trial) for trial in (trials if out.as_json else ())])


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
