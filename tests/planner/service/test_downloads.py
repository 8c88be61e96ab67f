"""Files of a plan come from addresses of their own, behind the guard like all else."""

from __future__ import annotations

import json

import pytest

from planner.exports.formats import FILE_NAMES


@pytest.mark.parametrize("name", FILE_NAMES.values())
def test_a_plan_is_downloaded_as_a_file(server, name):
    reply = server.ask(f"/plans/1/{name}")
    assert reply.status == 200
    stem, _, ending = name.rpartition(".")
    assert reply.headers["content-disposition"] == f'attachment; filename="{stem}_1.{ending}"'
    if ending == "json":
        assert reply.headers["content-type"] == "application/json"
        assert json.loads(reply.body)["id"] == 1
    else:
        assert reply.headers["content-type"] == "text/plain; charset=utf-8"
        assert b"Plan 1 of ddlplan" in reply.body


def test_a_plan_that_there_is_not_has_no_files(server):
    reply = server.ask("/plans/999999/plan.sh")
    assert reply.status == 404
    assert b'name="viewport"' in reply.body
    assert b"/static/site.css" in reply.body


def test_plan_that_changes_its_script_says_why_it_has_no_files(server):
    """The story: the answer was a bug in ddlplan."""
    document = server.ask("/api/v1/plans/1/export").data
    document |= {"use_case": "script:python train.py", "strategy": "script"}
    document |= {"processes": 1, "replicas": 1, "memory_format": "contiguous"}
    document |= {"options": {"patch_autocast": "bf16"}}
    number = server.ask("/api/v1/plans/import", body=document).data["id"]
    reply = server.ask(f"/plans/{number}/plan.sh")
    server.ask(f"/api/v1/plans/{number}/remove", body={})
    assert reply.status == 400
    assert b"changes the script itself" in reply.body
