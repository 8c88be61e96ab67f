"""Rendering: templates, and how they write times, numbers and the texts of users.

Every text that a template writes is escaped, and control characters in it are shown as escapes, so
that names and log lines of users can neither end an element nor turn the direction of a line.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, pass_context
from jinja2.runtime import Context as TemplateContext
from markupsafe import Markup, escape

from planner.jobs.suggested_command import name_database
from planner.plans.stored_plan import iso_utc
from planner.quantities import (
    format_bytes,
    format_count,
    format_duration,
    format_interval,
    format_number,
    is_uncertain,
    is_unreliable,
    printable,
)
from planner.report.figures.figure import Figure, figures_html
from planner.report.plan_line import describe_plan
from planner.scripts.naming import is_script
from planner.service.pages.assets import asset_address
from planner.service.pages.view import Context, View, reasons_here

_LONGEST = 300
"""Characters of a text; the rest is left out, for a list of such texts must not fill the page."""

_LONGEST_SENTENCE = 2000
"""The same of one that stands alone: an error ends with the way out."""

_NAVIGATION = (
    ("/", "Overview"),
    ("/machines", "Machines"),
    ("/studies", "Studies"),
    ("/plans", "Plans"),
    ("/hosts", "Hosts together"),
    ("/trainings", "Trainings"),
    ("/sweeps", "Sweeps"),
    ("/jobs", "Jobs"),
    ("/compare", "Compare"),
    ("/papers", "Papers"),
)


def render(view: View, path: str, context: Context, seen: int) -> str:
    """Make the HTML of a page, which is known to show all changes up to the one with a number."""
    here = "/" + path.split("/")[1]
    common: Mapping[str, Any] = {
        "title": view.title,
        "topics": " ".join(view.topics),
        "seen": seen,
        "here": here,
        "current": path == here,
        "now": context.now(),
        "db": context.db,
        "typed_on": context.typed_on,
    }
    return _ENVIRONMENT.get_template(view.template).render({**common, **view.values})


def _describe_age(moment: datetime, now: datetime) -> str:
    """Say how long ago a time was; the date where that is more than two weeks."""
    seconds = max(0.0, (now - moment).total_seconds())
    for unit, size, most in (("s", 1, 60), ("min", 60, 3600), ("h", 3600, 48 * 3600)):
        if seconds < most:
            return f"{int(seconds // size)} {unit} ago"
    if seconds < 14 * 86400:
        return f"{int(seconds // 86400)} days ago"
    return _date(moment)


def _date(moment: datetime) -> str:
    here = moment.astimezone(UTC)
    return f"{here.day} {here:%b %Y}"


def _clip(text: str, most: int = _LONGEST) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _finalize(value: object) -> object:
    """Prepare what a template writes; markup of our own stays as it is."""
    if value is None:
        return ""
    return printable(_clip(value)) if type(value) is str else value


def _whole(text: str) -> Markup:
    """Write a text in full, where it is what a person is to copy."""
    return escape(printable(text))


@pass_context
def _for_database(context: TemplateContext, command: str) -> Markup:
    """Write a command in full, with the database that the page shows."""
    return _whole(name_database(command, context["db"]))


def _sentence(text: str) -> Markup:
    """Write a sentence of which the end says as much as the beginning."""
    return escape(printable(_clip(text, _LONGEST_SENTENCE)))


def _log(text: str, most: int = 16_000) -> Markup:
    """Write the end of a log, with its lines."""
    lines = text[-most:].splitlines()
    return Markup("\n").join(escape(printable(line.expandtabs())) for line in lines)


def _age(moment: datetime | None, now: datetime) -> Markup:
    if moment is None:
        return Markup("")
    return Markup('<time datetime="{}" title="{}" data-age="{}">{}</time>').format(
        iso_utc(moment), _clock(moment), _date(moment), _describe_age(moment, now)
    )


def _time(moment: datetime | None) -> Markup:
    if moment is None:
        return Markup("")
    return Markup('<time datetime="{}">{}</time>').format(iso_utc(moment), _clock(moment))


def _clock(moment: datetime) -> str:
    return f"{_date(moment)}, {moment.astimezone(UTC):%H:%M:%S} UTC"


def _since(begin: datetime, end: datetime) -> str:
    """Write the time from one moment to another."""
    return format_duration(max(0.0, (end - begin).total_seconds()))


def _number(value: float | None, digits: int | None = None) -> str:
    """Write a number with three figures, or with so many digits behind the point."""
    if value is None:
        return ""
    if not math.isfinite(value):
        return "not finite"
    if digits is not None:
        return f"{value:,.{digits}f}"
    if value <= 0:
        return f"{value:.3g}"
    return f"{value:,.0f}" if value >= 1000 else format_number(value)


def _rate(value: float | None, size: float = 1.0) -> str:
    return "" if value is None else _number(value / size)


def _reasons(reasons: Sequence[str]) -> str:
    return "; ".join(reasons_here(reasons))


def _figures(figures: Sequence[Figure], key: str) -> Markup:
    return Markup(figures_html(figures, key))  # noqa: S704 - escaped


def _make_environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("planner.service", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
        finalize=_finalize,
    )
    environment.globals.update(asset=asset_address, navigation=_NAVIGATION)
    environment.filters.update(
        age=_age,
        bytes=format_bytes,
        clip=_clip,
        counted=format_count,
        duration=format_duration,
        figures=_figures,
        for_database=_for_database,
        interval=format_interval,
        log=_log,
        number=_number,
        plan=describe_plan,
        rate=_rate,
        reasons=_reasons,
        sentence=_sentence,
        since=_since,
        time=_time,
        whole=_whole,
    )
    environment.tests.update(script=is_script, uncertain=is_uncertain, unreliable=is_unreliable)
    return environment


_ENVIRONMENT = _make_environment()
