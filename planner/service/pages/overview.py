"""Overview: what runs now, the best plan of each use case on each machine, and the machines."""

from __future__ import annotations

from planner.api import jobs, machines, plans, trainings
from planner.records.job_record import OPEN_STATES
from planner.service.pages.actions import find_forms
from planner.service.pages.job import job_views
from planner.service.pages.machine import machine_views
from planner.service.pages.view import Context, PageRequest, View, end_of_times

_MOST_JOBS, _MOST_PLANS, _MOST_MACHINES, _MOST_TRAININGS = 12, 60, 40, 6


def show(request: PageRequest, context: Context) -> View:
    """Show the first page."""
    db = context.db
    active = jobs.find(states=OPEN_STATES, most=_MOST_JOBS, db=db)
    best = plans.find_best_of_each(db=db)
    known = machines.find(db=db)
    latest = trainings.find(most=_MOST_TRAININGS, db=db)
    if not (known or active or best or latest):
        return show_nothing(context)
    current = [one for one in known if one.is_current]
    return View(
        template="overview.html",
        title="Overview",
        values={
            "jobs": job_views(active),
            "best": best[:_MOST_PLANS],
            "num_best": len(best),
            "fastest": end_of_times(best),
            "machines": machine_views(current[:_MOST_MACHINES]),
            "num_machines": len(current),
            "trainings": latest,
        },
        topics=["job", "plan", "machine", "training"],
    )


def show_nothing(context: Context) -> View:
    """Show what to type first, where the database holds nothing or is not there yet."""
    return View(
        template="nothing.html",
        title="Overview",
        values={"forms": find_forms(context, "tune", "probe", "import")},
        topics=["job", "plan", "machine", "study", "training"],
    )
