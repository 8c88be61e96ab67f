"""The application: every route of the service, behind the guard."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace

from planner.api import changes
from planner.service.downloads import download_routes
from planner.service.endpoints.jobs import job_endpoints
from planner.service.endpoints.openapi import describe_api
from planner.service.endpoints.plan_changes import plan_change_endpoints
from planner.service.endpoints.reading import reading_endpoints
from planner.service.events import EventStreams
from planner.service.guard.addresses import Addresses
from planner.service.guard.attempts import WrongTokens
from planner.service.guard.credentials import Credentials
from planner.service.guard.entrance import Entrance
from planner.service.guard.guard import Guard
from planner.service.pages.assets import find_asset
from planner.service.pages.view import Context, PageRequest
from planner.service.requests.answers import HTML, Answer, App
from planner.service.requests.calls import Answering, Call
from planner.service.requests.documents import RequestError
from planner.service.requests.guarded_route import FORM, GuardedRoute
from planner.service.requests.settings import Bounds, ServiceSettings
from planner.service.requests.shared import SharedAnswering, SharedAnswers
from planner.service.requests.work import WorkerThreads
from planner.service.site import PAGES, show_page
from planner.store import whole_name
from probes.cpu import read_cpu

_THREADS = 4
_PART_FOR_REFRESHES = 0.005
"""Of the machine, for pages that somebody looks at: its cores are for what is trained on them."""

_FOR_EVER = {b"cache-control": b"private, max-age=31536000, immutable"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """The application with what ends its streams."""

    app: App
    routes: tuple[GuardedRoute, ...]
    streams: EventStreams


def make_service(
    settings: ServiceSettings,
    *,
    addresses: Addresses,
    credentials: Credentials,
    cookie: str,
    bounds: Bounds,
    on_used: Callable[[], None],
) -> Service:
    """Put the application together.

    Raises:
        StoreUrlError: The settings name no database.
    """
    settings = replace(settings, db=whole_name(settings.db))  # who reads it is in another folder
    threads = WorkerThreads(_THREADS, most_waiting=bounds.waiting)
    streams = EventStreams(changes.Follower(settings.db), threads, bounds)
    wrong_tokens = WrongTokens(bounds.wrong_tokens, bounds.wrong_tokens_per_s)
    entrance = Entrance(credentials, wrong_tokens, cookie=cookie, on_used=on_used)
    cores = _PART_FOR_REFRESHES * read_cpu().usable_cores
    shared = SharedAnswers(threads, lambda: streams.last_change_s, cores=cores)
    routes = (
        *_page_routes(settings, shared),
        *download_routes(settings.db, threads),
        GuardedRoute("/static/{name}", Answering(_give_asset, None)),
        GuardedRoute(
            "/sign-in",
            entrance.sign_in,
            methods=("POST",),
            content_types=(FORM,),
            is_open=True,
            body_bytes=4096,
        ),
        *_api_routes(settings, threads),
        GuardedRoute("/api/v1/events", streams, methods=("GET",), command="events"),
    )
    guard = Guard(
        routes=routes,
        addresses=addresses,
        credentials=credentials,
        bounds=bounds,
        allow_actions=settings.allow_actions,
        entrance=entrance,
        wrong_tokens=wrong_tokens,
    )
    return Service(app=guard, routes=routes, streams=streams)


def _page_routes(settings: ServiceSettings, shared: SharedAnswers) -> list[GuardedRoute]:
    context = Context(
        db=settings.db,
        allows_actions=settings.allow_actions,
        use_cases=tuple(settings.use_cases),
        data=None if settings.data is None else str(settings.data.absolute()),
    )

    def make(path: str) -> GuardedRoute:
        def answer(call: Call) -> Answer:
            request = PageRequest(path=call.path, numbers=call.numbers, query=call.query)
            page = show_page(path, request, context)
            return Answer(status=page.status, body=page.html.encode(), content_type=HTML)

        return GuardedRoute(path.replace("{id}", "{id:int}"), SharedAnswering(answer, shared))

    return [make(path) for path in PAGES]


def _api_routes(settings: ServiceSettings, threads: WorkerThreads) -> list[GuardedRoute]:
    endpoints = [
        *reading_endpoints(settings),
        *job_endpoints(settings),
        *plan_change_endpoints(settings),
    ]
    described = json.dumps(describe_api(endpoints), separators=(",", ":")).encode()
    return [
        GuardedRoute("/api/v1/openapi.json", Answering(lambda _: Answer(body=described), None)),
        *(
            GuardedRoute(
                f"/api/v1{endpoint.path.replace('{id}', '{id:int}')}",
                Answering(endpoint.call, threads),
                methods=("POST",) if endpoint.is_action else ("GET", "HEAD"),
                is_action=endpoint.is_action,
                command=endpoint.command,
            )
            for endpoint in endpoints
        ),
    ]


def _give_asset(call: Call) -> Answer:
    asset = find_asset(call.names["name"])
    if asset is None:
        raise RequestError(404, "there is nothing at this address")
    return Answer(body=asset.content, content_type=asset.content_type.encode(), headers=_FOR_EVER)
