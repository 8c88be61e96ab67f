"""View: what a page shows, before a template has made HTML of it."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from launch.noise_scale.efficiency import LR_SCALINGS
from launch.plan import PRECISIONS
from planner.api.plans import FoundPlan
from planner.jobs.suggested_command import name_database
from planner.plans.stored_plan import HERE, StoredPlan, utc_now
from planner.scripts.naming import measuring_options
from planner.store import is_postgres


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """An answer of the server."""

    status: int
    html: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRequest:
    """What a browser asks for."""

    path: str
    numbers: Mapping[str, int] = field(default_factory=dict)
    """Of the address: ``id`` of ``/plans/{id}``."""

    query: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What all pages of a server have in common."""

    db: str
    allows_actions: bool = False
    """Whether pages offer to start and end jobs."""

    use_cases: tuple[str, ...] = ()
    """Those that may be tuned, beside the built-in ones."""

    data: str | None = None
    """Data of these, in jobs that are started here."""

    now: Callable[[], datetime] = utc_now

    @property
    def typed_on(self) -> str | None:
        """The machine whose file the database is: commands that name it are typed there.

        ``None`` where a server has it, which all machines reach.
        """
        return None if is_postgres(self.db) else platform.node()

    def command_on(self, machine: str, command: str) -> str:
        """Give a command as it is typed on a machine; ``COPY`` is a copy of the database there.

        As `on` of ``macros.html`` says: one that is elsewhere has no file of this machine.
        """
        is_elsewhere = self.typed_on not in (None, machine)
        return name_database(command, "COPY") if is_elsewhere else command


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What a page shows."""

    template: str
    title: str
    values: Mapping[str, object] = field(default_factory=dict)
    topics: Sequence[str] = ()
    """Changes after which it is out of date: a `Topic`, or one with a number, such as ``job:3``."""

    status: int = 200


def reasons_here(reasons: Sequence[str]) -> list[str]:
    """Give why a plan is stale: the versions that it is held against are those of the server."""
    return [reason.replace(HERE, "this server has") for reason in reasons]


def data_options(data: str | None) -> list[str]:
    """Give the option that names data to a command; none where the use case finds its own."""
    return [] if data is None else ["--data", data]


def search_options(data: str | None, precision: str | None, stored: StoredPlan | None) -> list[str]:
    """Give the options of a search like the one that found a plan, or that has found none."""
    options = data_options(data)
    if precision is not None and precision != PRECISIONS[0]:
        options += ["--precision", precision]
    if stored is None:
        return options
    if stored.objective is not None:
        options += ["--objective", stored.objective.name]
    if stored.plan.lr_scaling != LR_SCALINGS[0]:
        options += ["--lr-scaling", stored.plan.lr_scaling]
    return options + measuring_options(stored.plan)


def end_of_times(found: Sequence[FoundPlan]) -> float:
    """Give the end of the small plots of speedups, which one outlier must not squeeze."""
    known = [one.stored.speedup for one in found if one.stored.speedup is not None]
    if not known:
        return 1.0
    medians = sorted(one.median for one in known)
    typical = medians[3 * (len(medians) - 1) // 4]
    return max(1.0, min(max(one.high for one in known), 2 * typical))


ShowPage = Callable[[PageRequest, Context], View]
"""Gives what a page shows.

Raises:
    PlannerError: There is no such thing, or the database cannot be used.
    QueryError: A value of the query is none that the page knows.
"""
