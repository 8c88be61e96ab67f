"""Answers of the API are as the OpenAPI document says."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import jsonschema
import pytest
from sample_plan import FOUND
from serving import check_answer, serving

from planner.plans.stored_plan import ComparedPlan
from planner.service.endpoints import shapes

OPEN_API = "/api/v1/openapi.json"
QUERIES = {"/api/v1/plans/compare": "?first=1&second=2"}
NOT_JSON = "/api/v1/events"


@pytest.fixture(scope="module")
def described(server) -> dict[str, Any]:
    reply = server.ask(OPEN_API)
    assert reply.status == 200
    return reply.document


def reading(described) -> list[str]:
    paths = [path for path, methods in described["paths"].items() if "get" in methods]
    return [path for path in paths if path != NOT_JSON]


def test_every_answer_has_its_shape(server, described):
    for path in reading(described):
        reply = server.ask(path.replace("{id}", "1") + QUERIES.get(path, ""))
        if path.endswith("/log"):
            assert reply.status == 400, path  # that job was stored without one
        else:
            assert reply.status == 200, (path, reply.body)
        check_answer(server, path, "get", reply)


def test_plan_of_a_script_has_the_shape_of_a_plan(described):
    """Its loader workers are null where they are its own, which the shape did not allow."""
    compared = ComparedPlan(
        name="defaults",
        plan=FOUND.plan,
        throughput_samples_per_s=21.2,
        speedup=FOUND.throughput_samples_per_s,
    )
    stored = replace(FOUND, use_case="script:python train.py", comparisons=(compared,))
    schema = {**shapes.PLAN, "components": described["components"]}
    jsonschema.validate({**stored.to_json(stale=False), "id": 1}, schema)


def lists_of(described) -> list[str]:
    found = []
    for path in reading(described):
        (content,) = described["paths"][path]["get"]["responses"]["200"]["content"].values()
        if "next" in content["schema"].get("properties", ()):
            found.append(path)
    return found


def test_every_list_has_something_in_it(server, described):
    assert len(lists_of(described)) > 8
    for path in lists_of(described):
        assert server.ask(path.replace("{id}", "1")).data, path


def test_without_a_database_lists_are_empty(tmp_path, own_locks, described):
    with serving(tmp_path) as started:
        for path in lists_of(described):
            reply = started.ask(path.replace("{id}", "1"))
            if path not in ("/api/v1/use-cases", "/api/v1/strategies"):
                assert (reply.status, reply.data) == (200, []), path
                assert reply.document["warnings"] != []
        for path in ("/api/v1/plans/1", "/plans/1/plan.sh"):
            assert started.ask(path).status == 404
    assert not (tmp_path / "planner.db").exists()


@pytest.mark.parametrize("number", [0, 99, 2**53, 2**70])
def test_what_is_not_there_is_not_found(server, described, number):
    for path in reading(described):
        if "{id}" in path:
            reply = server.ask(path.replace("{id}", str(number)))
            assert reply.status == 404, path
            check_answer(server, path, "get", reply)


def test_what_must_not_be_asked_so_is_said_in_the_same_form(server, described):
    for path in reading(described):
        reply = server.ask(path.replace("{id}", "1") + "?nothing=1")
        if path != OPEN_API:
            assert reply.status == 400, path
            check_answer(server, path, "get", reply)


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=-1",
        "limit=1.5",
        "limit=1e3",
        "limit=%D9%A3",
        "limit=1&limit=2",
        "before=0",
        "before=99999999999999999999",
        "state=nothing",
        "state=",
    ],
)
def test_a_parameter_that_is_none_is_refused(server, query):
    reply = server.ask(f"/api/v1/jobs?{query}")
    assert reply.status == (200 if query == "state=" else 400)


def test_lists_are_read_in_parts_which_together_are_all(server):
    for name in ("plans", "trials", "studies", "trainings", "jobs"):
        whole = [one["id"] for one in server.ask(f"/api/v1/{name}?limit=500").data]
        found, address = [], f"/api/v1/{name}?limit=1"
        while address is not None:
            document = server.ask(address).document
            assert len(document["data"]) == 1
            found += [one["id"] for one in document["data"]]
            address = document["next"]
        assert found == whole == sorted(whole, reverse=True), name


def test_the_document_describes_all_routes_and_no_others(server, described):
    refused = server.ask("/api/v1/plans", method="DELETE")
    check_answer(server, "/api/v1/plans", "get", refused)
    for path, methods in described["paths"].items():
        asked = server.ask(path.replace("{id}", "1"), method="PUT")
        assert set(asked.headers["allow"].split(", ")) - {"HEAD"} == {m.upper() for m in methods}


def test_the_document_is_one_of_openapi(described):
    assert re.fullmatch(r"3\.1\.\d+", described["openapi"])
    assert {"title", "version"} <= described["info"].keys()
    names = [
        operation.get("operationId")
        for methods in described["paths"].values()
        for operation in methods.values()
    ]
    assert len(set(names)) == len(names)
    for path, methods in described["paths"].items():
        for operation in methods.values():
            in_path = {p["name"] for p in operation.get("parameters", ()) if p["in"] == "path"}
            assert in_path == set(re.findall(r"{(\w+)}", path)), path
            assert all(reply["description"] for reply in operation["responses"].values())
            assert operation["summary"]
    for schema in schemas_in(described):
        jsonschema.Draft202012Validator.check_schema(schema)
    for reference in references_in(described):
        found: Any = described
        for step in reference.removeprefix("#/").split("/"):
            found = found[step]


def schemas_in(value: Any):
    """Give every schema of the document."""
    if isinstance(value, dict):
        if "schema" in value:
            yield value["schema"]
        for name, inner in value.items():
            yield from inner.values() if name == "schemas" else schemas_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from schemas_in(inner)


def references_in(value: Any):
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for inner in value.values():
            yield from references_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references_in(inner)
