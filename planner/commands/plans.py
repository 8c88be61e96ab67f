"""What do the commands about stored plans and trials do? They read, and show what they read."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from launch.plan import Plan
from planner.errors import NoDatabaseError, NoPlanError
from planner.output import Output
from planner.plan_file import read_plan_file
from planner.report.comparison import compare as hold_against
from planner.report.comparison import comparison_text
from planner.report.plans import plan_text, plans_csv, plans_table
from planner.report.table import Look, find_look
from planner.report.trials import trial_json, trials_csv, trials_table
from planner.software import current_software
from planner.store import Store
from planner.stored_plan import StoredPlan, stale_reasons
from planner.study import StoredTrial
from probes.node import probe

OpenStore = Callable[[], Store]


def list_plans(
    open_store: OpenStore, out: Output, use_case: str | None, node: str | None, *, as_csv: bool
) -> None:
    """Show the stored plans. Where nothing was tuned yet there are none, which is no error."""
    judged: list[tuple[StoredPlan, Sequence[str]]] = []
    with _without_database(out), open_store() as store:
        judged = [(plan, _reasons(store, plan)) for plan in store.plans(use_case, node)]
        if not judged:
            out.note("no plans: ddlplan tune finds one")
    if as_csv:
        sys.stdout.write(plans_csv(judged))
    elif judged:
        _show(out, plans_table(judged, _look()))
    out.finish([plan.to_json(stale=bool(reasons)) for plan, reasons in judged])


def show_trials(
    open_store: OpenStore, out: Output, use_case: str | None, node: str | None, *, as_csv: bool
) -> None:
    """Show every trial. Where nothing was tuned yet there are none, which is no error."""
    trials: list[StoredTrial] = []
    with _without_database(out), open_store() as store:
        trials = store.all_trials(use_case, node)
        if not trials:
            out.note("no trials: ddlplan tune makes some")
    if as_csv:
        sys.stdout.write(trials_csv(trials))
    elif trials:
        _show(out, trials_table(trials, _look()))
    out.finish([trial_json(trial) for trial in trials])


def show_plan(open_store: OpenStore, out: Output, plan_id: int) -> None:
    """Show one plan with its evidence."""
    with open_store() as store:
        stored = store.get_plan(plan_id)
        _show_one(store, out, stored, _reasons(store, stored))


def show_best(open_store: OpenStore, out: Output, use_case: str, node: str | None) -> None:
    """Show the plan that would be launched: here, or on the node that is named.

    Raises:
        NoPlanError: There is none.
    """
    software = current_software()
    with open_store() as store:
        name, fingerprint = _identify(store, node)
        stored = store.best_plan(use_case, software=software, fingerprint=fingerprint, node=name)
        if stored is None:
            raise NoPlanError(
                f"no plan for {use_case} on {name}: "
                f"run ddlplan tune --use-case {shlex.quote(use_case)}"
            )
        reasons = stale_reasons(stored, fingerprint=fingerprint, software=software)
        _show_one(store, out, stored, reasons)


def compare(open_store: OpenStore, out: Output, first: int, second: int) -> None:
    """Show how two plans differ."""
    with open_store() as store:
        one, other = store.get_plan(first), store.get_plan(second)
        stale = [bool(_reasons(store, plan)) for plan in (one, other)]
    comparison = hold_against(one, other)
    for warning in comparison.warnings:
        out.warn(warning)
    _show(out, comparison_text(comparison, _look()))
    out.finish(comparison.to_json(first_stale=stale[0], second_stale=stale[1]))


def export(open_store: OpenStore, out: Output, plan_id: int) -> None:
    """Write a plan as JSON, which ``plans import`` reads, with commands that need no ddlplan."""
    with open_store() as store:
        stored = store.get_plan(plan_id)
        document = stored.to_json(stale=bool(_reasons(store, stored)))
    document["commands"] = plain_commands(stored.plan)
    if not out.as_json:
        sys.stdout.write(json.dumps(document, indent=2, allow_nan=False) + "\n")
    out.finish(document)


def import_plan(db: str, out: Output, file: Path) -> None:
    """Store a plan from a file."""
    stored = read_plan_file(file)  # first: a file that is no good must not make a database
    with Store.open(db) as store:
        plan_id = store.save_plan(stored)
        kept = store.get_plan(plan_id)
        document = kept.to_json(stale=bool(_reasons(store, kept)))
    out.say(f"stored plan {plan_id}")
    out.finish(document)


def remove(open_store: OpenStore, out: Output, plan_id: int) -> None:
    """Forget a plan."""
    with open_store() as store:
        store.remove_plan(plan_id)
    out.say(f"removed plan {plan_id}")
    out.finish({"id": plan_id})


def plain_commands(plan: Plan) -> dict[str, str]:
    """Give command lines that start a script of one's own in the layout of a plan.

    They set processes, threads and devices. Batch and memory format are the script's to set.
    """
    per_process = plan.threads_per_process
    script = "YOUR_SCRIPT.py"
    mpirun = [
        *("mpirun", "-n", str(plan.processes), "--bind-to", "core"),
        *("--map-by", f"slot:PE={per_process}", "-x", f"OMP_NUM_THREADS={per_process}"),
    ]
    return {
        "torchrun": f"OMP_NUM_THREADS={per_process} torchrun --standalone "
        f"--nproc-per-node={plan.processes} {script}",
        "mpirun": f"{' '.join(mpirun)} python {script}",
    }


@contextmanager
def _without_database(out: Output) -> Iterator[None]:
    """Let a database that is missing count as an empty one, but say so: it may be mistyped."""
    try:
        yield
    except NoDatabaseError as error:
        out.warn(str(error))


def _identify(store: Store, node: str | None) -> tuple[str, str | None]:
    """Give name and hardware of a node: of this one as it is now, of another as it was seen."""
    if node is not None:
        return node, store.latest_fingerprint(node)
    here = probe(quick=True)
    return here.node, here.fingerprint()


def _show_one(store: Store, out: Output, stored: StoredPlan, reasons: Sequence[str]) -> None:
    trials = [] if stored.study_id is None else store.trials(stored.study_id)
    _show(out, plan_text(stored, reasons, trials, _look()))
    document: dict[str, Any] = stored.to_json(stale=bool(reasons))
    out.finish(document)


def _reasons(store: Store, stored: StoredPlan) -> Sequence[str]:
    fingerprint = store.latest_fingerprint(stored.node)
    return stale_reasons(stored, fingerprint=fingerprint, software=current_software())


def _look() -> Look:
    return find_look(sys.stdout, os.environ)


def _show(out: Output, text: str) -> None:
    if not out.as_json:
        sys.stdout.write(text)
