"""Study: its trials, what they teach, the race while it runs, and what to type next."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial

from planner.api import plans, studies
from planner.api.studies import FoundStudy
from planner.report.figures.figure import Figure, drawn_figures
from planner.report.figures.study_figures import (
    effects_figure,
    failures_figure,
    race_figure,
    strategies_figure,
    trials_figure,
)
from planner.scripts.naming import command_for, command_line
from planner.service.pages.job import find_running
from planner.service.pages.query import read_part
from planner.service.pages.view import (
    Context,
    PageRequest,
    View,
    data_options,
    search_options,
)
from planner.trials.result import Role
from planner.tuning.study import StoredTrial

_MOST_TRIALS, _TRIALS_PER_PART = 240, 20
_MOST_LEARNED = 64
_LEARNED: dict[tuple[object, ...], Figure | None] = {}
_LOCK = threading.Lock()
_BASELINES = (Role.DEFAULTS, Role.BASELINE, Role.OWN_BATCH)


def show(request: PageRequest, context: Context) -> View:
    """Show one study."""
    study_id, db = request.numbers["id"], context.db
    found = studies.get(study_id, most_trials=_MOST_TRIALS, db=db)
    part = read_part(
        request,
        partial(plans.find_latest_trials, study_id, db=db),
        per_page=_TRIALS_PER_PART,
        anchor="trials",
    )
    running = find_running(lambda job: job.study_id == study_id, context)
    record = found.record
    figures = drawn_figures(
        trials_figure(found.trials, num_trials=record.num_trials),
        strategies_figure(found.trials),
        _effects_figure(found, db),
        failures_figure(found.failures),
    )
    searches = [job.search for job in running if job.search is not None]
    return View(
        template="study.html",
        title=f"Study {record.id}: {record.use_case} on {record.node}",
        values={
            "found": found,
            "record": record,
            "running": running,
            "race": drawn_figures(*map(race_figure, searches)),
            "figures": figures,
            "baselines": _find_baselines(found.trials),
            "part": part,
            "next_command": _next_command(found, context, is_running=bool(running)),
        },
        topics=[f"study:{study_id}", "job"],
    )


def _effects_figure(found: FoundStudy, db: str) -> Figure | None:
    """Draw what settings do, anew after another trial: it takes most of the page's time."""
    if not found.trials:
        return None
    last = found.trials[-1]
    key = (db, last.study_id, last.id, len(found.trials), last.created_at)
    with _LOCK:
        if key in _LEARNED:
            return _LEARNED[key]
    figure = effects_figure(studies.learn(found))
    with _LOCK:
        _LEARNED[key] = figure
        while len(_LEARNED) > _MOST_LEARNED:
            del _LEARNED[next(iter(_LEARNED))]
    return figure


def _find_baselines(trials: Sequence[StoredTrial]) -> list[StoredTrial]:
    """Give the latest trial of each plan that is only compared with."""
    latest = {trial.result.role: trial for trial in trials}
    return [latest[role] for role in _BASELINES if role in latest]


def _next_command(found: FoundStudy, context: Context, *, is_running: bool) -> str:
    record, use_case = found.record, found.record.use_case
    if is_running:
        return command_line(["ddlplan", "trials", "--use-case", use_case])
    data = None if record.facts is None else record.facts.data
    last = found.plans[-1] if found.plans else None
    if record.is_open or last is None or found.stale_reasons:
        options = search_options(data, record.precision, last)
        command = command_for(use_case, "tune", *options)
    else:
        command = command_for(use_case, "launch", *data_options(data), "--plan", str(last.id))
    return context.command_on(record.node, command)
