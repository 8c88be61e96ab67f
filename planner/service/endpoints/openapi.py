"""OpenAPI document, made of the endpoints themselves: https://spec.openapis.org/oas/v3.1.0."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from planner.plans.software import current_software
from planner.service.endpoints import shapes
from planner.service.endpoints.endpoint import Endpoint, Parameter
from planner.service.endpoints.shapes import Shape

_ERRORS = {
    400: "The request is not as it should be.",
    401: "The token is missing or wrong.",
    403: "Another page asked, or the server only shows.",
    404: "There is no such thing.",
    405: "The address has other methods.",
    408: "The body took too long.",
    409: "It is not in a state for that.",
    413: "The body is too large.",
    414: "The address is too long.",
    415: "The body is no JSON, or there should be none.",
    421: "The server was not started for that host name.",
    429: "Too many wrong tokens.",
    431: "The headers are too large.",
    500: "A bug in ddlplan.",
    503: "The server is busy, or the database cannot be used.",
}
"""Statuses that every endpoint may answer with."""

_EVENTS = (
    "Changes as server-sent events: `change` with the topic and the number of what changed, and "
    "`reset` where more changed than the log holds. The stream goes on after `Last-Event-ID`."
)

_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "of the client's choice: a request that is sent again starts no second job",
    "schema": {"type": "string", "maxLength": 200},
}


def describe_api(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """Give the document."""
    paths: dict[str, Any] = {}
    for endpoint in endpoints:
        paths.setdefault(f"/api/v1{endpoint.path}", {})[endpoint.method.lower()] = _operation(
            endpoint
        )
    paths["/api/v1/events"] = {"get": _events()}
    paths["/api/v1/openapi.json"] = {
        "get": {
            "summary": "This document.",
            "operationId": "get_openapi",
            "responses": _responses({}, "application/json", "This document."),
        }
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "ddlplan", "version": current_software()["ddlplan"]},
        "paths": paths,
        "security": [{"token": []}, {"cookie": []}],
        "components": {
            "schemas": {**shapes.components(), "Error": shapes.ERROR},
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "cookie": {"type": "apiKey", "in": "cookie", "name": "ddlplan-PORT"},
            },
        },
    }


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    document = shapes.document(endpoint.shape, is_list=endpoint.is_list)
    in_path = [{"name": "id", "in": "path", "required": True, "schema": shapes.WHOLE}]
    operation: dict[str, Any] = {
        "summary": endpoint.about,
        "operationId": f"{endpoint.method.lower()}{endpoint.path.replace('/', '_')}".translate(
            {ord("{"): None, ord("}"): None, ord("-"): "_"}
        ),
        "parameters": [
            *(in_path if "{id}" in endpoint.path else []),
            *(_parameter(one) for one in endpoint.parameters),
            *([_KEY] if endpoint.has_key else []),
        ],
        "responses": _responses(
            document,
            "application/json",
            f"As {endpoint.command} prints it.",
            status=endpoint.status,
        ),
    }
    if endpoint.body is not None:
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": endpoint.body}},
        }
    return operation


def _parameter(parameter: Parameter) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "integer" if parameter.is_number else "string"}
    if parameter.is_number and parameter.least is not None:
        schema["minimum"] = parameter.least
    if parameter.choices:
        schema["enum"] = list(parameter.choices)
    return {
        "name": parameter.name,
        "in": "query",
        "required": parameter.is_needed,
        "description": parameter.about,
        "schema": schema,
    }


def _events() -> dict[str, Any]:
    return {
        "summary": _EVENTS,
        "operationId": "get_events",
        "parameters": [
            {
                "name": name,
                "in": where,
                "required": False,
                "description": "number of the last event that was seen",
                "schema": shapes.WHOLE,
            }
            for name, where in (("Last-Event-ID", "header"), ("after", "query"))
        ],
        "responses": _responses({"type": "string"}, "text/event-stream", "Events, until it ends."),
    }


def _responses(
    schema: Shape, content_type: str, about: str, *, status: int = 200
) -> dict[str, Any]:
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    return {
        str(status): {"description": about, "content": {content_type: {"schema": schema}}},
        **{str(code): {"description": said, "content": error} for code, said in _ERRORS.items()},
    }
