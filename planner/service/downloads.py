"""Downloads: the scripts and the JSON of a plan as files, under addresses of their own."""

from __future__ import annotations

import json

from launch.errors import LaunchError
from planner.api import plans
from planner.api.plans import FoundPlan
from planner.errors import PlannerError
from planner.exports.formats import FILE_NAMES, JSON, export_text
from planner.service.endpoints.endpoint import refuse
from planner.service.requests.answers import Answer
from planner.service.requests.calls import Answering, Call
from planner.service.requests.guarded_route import GuardedRoute
from planner.service.requests.work import WorkerThreads


def download_routes(db: str, threads: WorkerThreads) -> list[GuardedRoute]:
    """Give a route for each file that a plan can be exported to."""

    def make(text_format: str, name: str) -> GuardedRoute:
        def answer(call: Call) -> Answer:
            plan_id = call.numbers["id"]
            try:
                text = _export(plans.get(plan_id, db=db), text_format)
            except (PlannerError, LaunchError) as error:
                raise refuse(error) from error
            kind = "application/json" if text_format == JSON else "text/plain; charset=utf-8"
            stem, dot, ending = name.rpartition(".")
            shown = f'attachment; filename="{stem}_{plan_id}{dot}{ending}"'
            return Answer(
                body=text.encode(),
                content_type=kind.encode(),
                headers={b"content-disposition": shown.encode()},
            )

        return GuardedRoute(f"/plans/{{id:int}}/{name}", Answering(answer, threads))

    return [make(text_format, name) for text_format, name in FILE_NAMES.items()]


def _export(found: FoundPlan, text_format: str) -> str:
    if text_format != JSON:
        return export_text(found.stored, text_format, found.stale_reasons)
    document = found.stored.to_json(stale=found.is_stale)
    return json.dumps(document, indent=2, allow_nan=False) + "\n"
