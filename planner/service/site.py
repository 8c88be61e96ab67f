"""Site: the addresses of all pages, and what each is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path

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
from planner.plans.stored_plan import utc_now
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

__all__ = ["Page", "PageRequest", "Site"]

_PAGES: Mapping[str, ShowPage] = {
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


class Site:
    """Gives pages of a database; ``data`` are of the jobs that are started here."""

    def __init__(
        self,
        db: str = "planner.db",
        *,
        allows_actions: bool = False,
        use_cases: Sequence[str] = (),
        data: Path | None = None,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self._context = Context(
            db=db,
            allows_actions=allows_actions,
            use_cases=tuple(use_cases),
            data=None if data is None else str(data.absolute()),
            now=now,
        )

    @property
    def paths(self) -> Sequence[str]:
        """Addresses of pages; ``{id}`` stands for a whole number."""
        return tuple(_PAGES)

    def show(self, path: str, request: PageRequest) -> Page:
        """Give the page of one of `paths`, or one that says why there is none."""
        seen = 0
        try:
            seen = _find_newest(self._context.db)  # first: what changes meanwhile comes after it
            view = _PAGES[path](request, self._context)
        except NoDatabaseError:
            view = overview.show_nothing(self._context)
        except QueryError as error:
            view = _refuse(400, "That address is not right", str(error))
        except (NoPlanError, NoJobError, NoTrainingError, NoSweepError) as error:
            view = _refuse(404, "There is no such thing", str(error))
        except StoreError as error:
            tell_terminal(f"error: {printable(str(error))}\n")
            why = (
                "the terminal of ddlplan serve says why; this page tries again when it is reloaded"
            )
            view = _refuse(503, "The database cannot be used", why)
        except PlannerError as error:
            view = _refuse(400, "That cannot be shown", str(error))
        return Page(status=view.status, html=render(view, request.path, self._context, seen))


def _find_newest(db: str) -> int:
    """Give the number of the newest change; 0 without one."""
    try:
        newest = changes.find_newest(db=db)
    except NoDatabaseError:  # of which some pages know nothing
        return 0
    return 0 if newest is None else newest.id


def _refuse(status: int, title: str, message: str) -> View:
    return View(template="refused.html", title=title, values={"message": message}, status=status)
