"""Site: the addresses of all pages, and what each is made of."""

from __future__ import annotations

from collections.abc import Mapping

from planner.api import changes
from planner.errors import (
    NoDatabaseError,
    NoJobError,
    NoPlanError,
    NoSweepError,
    NoTrainingError,
    PlannerError,
    StoreError,
)
from planner.quantities import printable
from planner.service.pages import (
    compare,
    hosts,
    job,
    lists,
    machine,
    overview,
    plan,
    search,
    study,
    sweep,
    training,
)
from planner.service.pages.query import QueryError
from planner.service.pages.rendering import render
from planner.service.pages.view import Context, Page, PageRequest, ShowPage, View
from planner.service.papers import page as papers_page
from planner.service.requests.terminal import tell_terminal

PAGES: Mapping[str, ShowPage] = {
    "/": overview.show,
    "/machines": lists.show_machines,
    "/machines/{id}": machine.show,
    "/studies": lists.show_studies,
    "/studies/{id}": study.show,
    "/plans": lists.show_plans,
    "/plans/{id}": plan.show,
    "/hosts": hosts.show,
    "/trainings": lists.show_trainings,
    "/trainings/{id}": training.show,
    "/sweeps": lists.show_sweeps,
    "/sweeps/{id}": sweep.show,
    "/jobs": lists.show_jobs,
    "/jobs/{id}": job.show,
    "/compare": compare.show,
    "/papers": papers_page.show,
    "/search": search.show,
}
"""What shows each address; ``{id}`` stands for a whole number."""


def show_page(path: str, request: PageRequest, context: Context) -> Page:
    """Give the page of one of `PAGES`, or one that says why there is none."""
    seen = 0
    try:
        seen = _find_newest(context.db)  # first: what changes meanwhile comes after it
        view = PAGES[path](request, context)
    except NoDatabaseError:
        view = overview.show_nothing(context)
    except QueryError as error:
        view = _refuse(400, "That address is not right", str(error))
    except (NoPlanError, NoJobError, NoTrainingError, NoSweepError) as error:
        view = _refuse(404, "There is no such thing", str(error))
    except StoreError as error:
        tell_terminal(f"error: {printable(str(error))}\n")
        why = "the terminal of ddlplan serve says why; this page tries again when it is reloaded"
        view = _refuse(503, "The database cannot be used", why)
    except PlannerError as error:
        view = _refuse(400, "That cannot be shown", str(error))
    return Page(status=view.status, html=render(view, request.path, context, seen))


def _find_newest(db: str) -> int:
    """Give the number of the newest change; 0 without one."""
    try:
        newest = changes.find_newest(db=db)
    except NoDatabaseError:  # of which some pages know nothing
        return 0
    return 0 if newest is None else newest.id


def _refuse(status: int, title: str, message: str) -> View:
    return View(template="refused.html", title=title, values={"message": message}, status=status)
