"""Lists: all machines, studies, plans, trainings and jobs, in parts, the newest first."""

from __future__ import annotations

from functools import partial

from planner.api import jobs, machines, plans, studies, sweeps, trainings
from planner.records.job_record import JobState
from planner.records.training_record import TrainingStatus
from planner.service.pages.actions import find_forms
from planner.service.pages.job import job_views
from planner.service.pages.machine import machine_views
from planner.service.pages.query import find_choice, find_text, read_part
from planner.service.pages.view import Context, PageRequest, View, end_of_times

_MOST_MACHINES = 300


def show_machines(request: PageRequest, context: Context) -> View:
    """Show all machines, earlier hardware of a name below its present one."""
    found = machines.find(db=context.db)
    return View(
        template="machines.html",
        title="Machines",
        values={
            "machines": machine_views(found[:_MOST_MACHINES]),
            "num_machines": len(found),
            "forms": find_forms(context, "probe", "doctor"),
        },
        topics=["machine"],
    )


def show_studies(request: PageRequest, context: Context) -> View:
    """Show studies."""
    use_case, node = find_text(request, "use_case"), find_text(request, "node")
    part = read_part(request, partial(studies.find, use_case, node, db=context.db))
    return View(
        template="studies.html",
        title="Studies",
        values={
            "part": part,
            "use_case": use_case,
            "node": node,
            "forms": find_forms(context, "tune"),
        },
        topics=["study"],
    )


def show_plans(request: PageRequest, context: Context) -> View:
    """Show plans."""
    use_case, node = find_text(request, "use_case"), find_text(request, "node")
    find = partial(plans.find_latest, use_case, node, db=context.db)
    part = read_part(request, find, number=lambda one: one.stored.id)
    return View(
        template="plans.html",
        title="Plans",
        values={
            "part": part,
            "use_case": use_case,
            "node": node,
            "fastest": end_of_times(part.items),
            "forms": find_forms(context, "import"),
        },
        topics=["plan"],
    )


def show_trainings(request: PageRequest, context: Context) -> View:
    """Show trainings."""
    use_case = find_text(request, "use_case")
    state = find_choice(request, "state", list(TrainingStatus))
    states = None if state is None else [TrainingStatus(state)]
    part = read_part(request, partial(trainings.find, use_case, states=states, db=context.db))
    return View(
        template="trainings.html",
        title="Trainings",
        values={
            "part": part,
            "use_case": use_case,
            "state": state,
            "states": list(TrainingStatus),
            "forms": find_forms(context, "launch"),
        },
        topics=["training"],
    )


def show_sweeps(request: PageRequest, context: Context) -> View:
    """Show sweeps."""
    use_case = find_text(request, "use_case")
    part = read_part(request, partial(sweeps.find, use_case, db=context.db))
    return View(
        template="sweeps.html",
        title="Sweeps",
        values={"part": part, "use_case": use_case, "forms": find_forms(context, "sweep")},
        topics=["sweep"],
    )


def show_jobs(request: PageRequest, context: Context) -> View:
    """Show jobs."""
    state = find_choice(request, "state", list(JobState))
    states = None if state is None else [JobState(state)]
    part = read_part(request, partial(jobs.find, states=states, db=context.db))
    return View(
        template="jobs.html",
        title="Jobs",
        values={
            "part": part,
            "jobs": job_views(part.items),
            "state": state,
            "states": list(JobState),
            "forms": find_forms(context, "tune", "launch", "sweep", "probe", "doctor"),
        },
        topics=["job"],
    )
