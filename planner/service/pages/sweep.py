"""Sweep: its findings, its plots, its points, and what to type next."""

from __future__ import annotations

import shlex

from planner.api import sweeps
from planner.report.figures.sweep_figures import sweep_figures
from planner.report.sweeps.tables import interval_note, point_rows, sweep_facts
from planner.service.pages.job import find_running
from planner.service.pages.view import Context, PageRequest, View
from planner.sweeps.findings import find_sentences
from planner.sweeps.sweep_record import SweepRecord


def show(request: PageRequest, context: Context) -> View:
    """Show one sweep."""
    sweep_id = request.numbers["id"]
    found = sweeps.get(sweep_id, db=context.db)
    record = found.record
    return View(
        template="sweep.html",
        title=f"Sweep {record.id}: {record.use_case} on {record.node}",
        values={
            "record": record,
            "running": find_running(lambda job: job.sweep_id == sweep_id, context),
            "sentences": find_sentences(found),
            "figures": sweep_figures(found),
            "rows": point_rows(found),
            "facts": sweep_facts(found),
            "interval_note": interval_note(found),
            "next_command": _next_command(record),
        },
        topics=[f"sweep:{sweep_id}", "job"],
    )


def _next_command(record: SweepRecord) -> str:
    """Give the command that goes on with a sweep, or shows one that is done."""
    if record.is_finished:
        return f"ddlplan sweep show {record.id} --html sweep.html"
    words = ["ddlplan", "sweep", "--use-case", record.use_case]
    words += ["--batches", ",".join(map(str, record.batches))]
    devices = [str(one.plan.processes) for one in record.settings if one.plan_id is None]
    words += ["--devices", ",".join(devices)] if devices else []
    plans = [str(one.plan_id) for one in record.settings if one.plan_id is not None]
    words += ["--plans", ",".join(plans)] if plans else []
    words += ["--epochs", str(record.epochs)]
    words += ["--data", record.data] if record.data else []
    words += ["--seed", str(record.seed)] if record.seed else []
    return shlex.join(words)
