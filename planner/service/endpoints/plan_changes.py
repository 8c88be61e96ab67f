"""Endpoints that change which plans are stored."""

from __future__ import annotations

from planner.api import plans
from planner.service.endpoints import shapes
from planner.service.endpoints.endpoint import Endpoint, Found, Values
from planner.service.requests.settings import ServiceSettings


def plan_change_endpoints(settings: ServiceSettings) -> list[Endpoint]:
    """Give all endpoints that change plans."""
    db = settings.db

    def import_plan(values: Values) -> Found:
        found = plans.import_document(values["body"], db=db)
        return Found(
            data=found.stored.to_json(stale=found.is_stale),
            address=f"/api/v1/plans/{found.stored.id}",
        )

    def remove_plan(values: Values) -> Found:
        plans.remove(values["id"], db=db)
        return Found(data={"id": values["id"]})

    return [
        Endpoint(
            path="/plans/import",
            command="plans import",
            about="Store a plan, from what /plans/{id}/export gives or plans export writes.",
            answer=import_plan,
            shape=shapes.PLAN,
            body=shapes.by_name(shapes.ANYTHING),
            status=201,
        ),
        Endpoint(
            path="/plans/{id}/remove",
            command="plans rm",
            about="Remove a plan; its trials stay.",
            answer=remove_plan,
            shape=shapes.REMOVED,
            body=shapes.NOTHING,
        ),
    ]
