"""Actions: what a request may start, end and change, and what it may not say."""

from __future__ import annotations

import json
import os
import platform
import shutil
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import jsonschema
import pytest
from filled_store import fill
from machine_holder import machine_in_use
from serving import CASES, STEADY, Serving, act, serving
from training_samples import JOB

from launch.system.process_identity import ProcessIdentity
from planner.records.job_record import JobKind
from planner.store import Store

TO_LOSS = {"use_case": "simplebig", "objective": "time-to-loss"}
CANCEL, REMOVE = "/api/v1/jobs/{id}/cancel", "/api/v1/plans/{id}/remove"


@pytest.fixture(scope="module")
def acting(tmp_path_factory, own_locks) -> Iterator[Serving]:
    """A server that was started with a use case, data and hosts."""
    folder = tmp_path_factory.mktemp("acting")
    (folder / "photos").mkdir()
    (folder / "hosts.txt").write_text("localhost\n127.0.0.1\n")
    (folder / "mycase.py").write_text(CASES.read_text())
    options = ["--allow-actions", "--use-case", STEADY, "--use-case", "mycase.py:Steady"]
    options += ["--data", "photos", "--hosts", "hosts.txt"]
    with serving(folder, *options) as started:
        yield started
        for job in started.ask("/api/v1/jobs?state=running").data:
            started.ask(f"/api/v1/jobs/{job['id']}/cancel", body={})


def test_a_job_is_queued_run_and_its_log_is_read_in_parts(acting):
    reply = act(acting, "/api/v1/jobs/probe", {"quick": True})
    assert reply.status == 202
    number = reply.data["id"]
    assert reply.headers["location"] == f"/api/v1/jobs/{number}"
    assert reply.data["title"] == "ddlplan probe --quick"
    job = acting.wait_for_job(number)
    assert (job["state"], job["exit_code"]) == ("done", 0)

    whole = acting.ask(f"/api/v1/jobs/{number}/log").data
    assert whole["next_offset"] == whole["size"] > 0
    part = acting.ask(f"/api/v1/jobs/{number}/log?offset=3&limit=7").data
    assert part["offset"] == 3
    assert 3 < part["next_offset"] <= 10
    assert part["text"].encode() == whole["text"].encode()[3 : part["next_offset"]]
    tail = acting.ask(f"/api/v1/jobs/{number}/log?offset=-5").data
    assert whole["text"].encode().endswith(tail["text"].encode())
    assert acting.ask(f"/api/v1/jobs/{number}/log?offset=99999999").data["text"] == ""
    assert acting.ask(f"/api/v1/jobs/{number}/log?limit=99999999").data == whole


def test_options_of_the_server_are_added_and_those_of_the_request_checked(acting):
    wanted = {"use_case": STEADY, "budget": "12s", "trials": 1, "strategies": "threads,sequential"}
    searched = act(acting, "/api/v1/jobs/tune", wanted).data
    assert searched["request"] == wanted | {"data": str(acting.folder / "photos")}
    cancelled = act(acting, CANCEL, {}, searched["id"])
    assert cancelled.status == 202
    assert cancelled.data["cancel_requested_at"] is not None
    assert acting.wait_for_job(searched["id"])["state"] == "cancelled"
    assert act(acting, CANCEL, {}, searched["id"]).status == 409

    wanted = {"use_case": STEADY, "batches": "8,16", "devices": "1", "fresh": True}
    swept = act(acting, "/api/v1/jobs/sweep", wanted)
    assert swept.data["title"].startswith("ddlplan sweep --batches=8,16 --devices=1 --fresh")
    acting.ask(f"/api/v1/jobs/{swept.data['id']}/cancel", body={})

    checked = acting.ask("/api/v1/jobs/doctor", body={"on_hosts": True, "use_case": "simplebig"})
    hosts = str(acting.folder / "hosts.txt")
    assert checked.data["request"] == {"use_case": "simplebig", "hosts": hosts}
    acting.ask(f"/api/v1/jobs/{checked.data['id']}/cancel", body={})


def test_a_request_that_is_sent_again_with_its_key_starts_no_second_job(acting):
    def send(body, key="a key of ours") -> tuple[int, int | None]:
        reply = acting.ask("/api/v1/jobs/probe", body=body, idempotency_key=key)
        return reply.status, reply.document.get("data", {}).get("id")

    first = send({"quick": True})
    assert first[0] == 202
    assert send({"quick": True}) == first
    assert send({"quick": False})[0] == 409
    assert send({"quicker": True}, "another")[0] == 400
    assert send({"quick": True}, "another")[1] not in (None, first[1])
    assert send({"quick": True}, "a" * 201)[0] == 400
    with ThreadPoolExecutor(8) as threads:
        sent = list(threads.map(lambda _: send({"quick": True}, "../../third"), range(8)))
    assert {status for status, _ in sent} <= {202, 409}
    assert len({number for _, number in sent} - {None}) == 1
    for job in acting.ask("/api/v1/jobs?state=queued").data:
        acting.ask(f"/api/v1/jobs/{job['id']}/cancel", body={})


@pytest.mark.parametrize(
    ("kind", "body", "reason"),
    [
        ("tune", {}, "use_case is missing"),
        ("tune", {"use_case": 1}, "expected a text"),
        ("tune", {"use_case": "nothing"}, "/api/v1/use-cases"),
        ("tune", {"use_case": "os:system"}, "/api/v1/use-cases"),
        ("tune", {"use_case": "/etc/passwd"}, "/api/v1/use-cases"),
        ("tune", {"use_case": f"{CASES}:Fails"}, "/api/v1/use-cases"),
        ("tune", {"use_case": "--db=/tmp/other.db"}, "/api/v1/use-cases"),
        ("tune", {"use_case": "simplebig", "data": "/etc"}, "data is no option"),
        ("tune", {"use_case": "simplebig", "hosts": "/etc/hosts"}, "hosts is no option"),
        ("tune", {"use_case": "simplebig", "ssh_config": "/tmp/a"}, "ssh_config is no option"),
        ("tune", {"use_case": "simplebig", "mpirun": "/bin/sh"}, "mpirun is no option"),
        ("tune", {"use_case": "simplebig", "allow_run_as_root": True}, "is no option"),
        ("tune", {"use_case": "simplebig", "set": ["a=b"]}, "set is no option"),
        ("tune", {"use_case": "simplebig", "db": "/tmp/other.db"}, "db is no option"),
        ("tune", {"use_case": "simplebig", "replay": "/etc/passwd"}, "replay is no option"),
        ("tune", {"use_case": "simplebig", "--db": "x"}, "is no option"),
        ("tune", {"usecase": "simplebig"}, "usecase is no option: did you mean use_case?"),
        ("tune", {"use_case": "simplebig", "budget": "5 weeks"}, "expected a duration"),
        ("tune", {"use_case": "simplebig", "trials": -1}, "trials=-1"),
        ("tune", {"use_case": "simplebig", "trials": True}, "trials=True"),
        ("tune", {"use_case": "simplebig", "batch_size": 10**30}, "batch_size="),
        ("tune", {"use_case": "simplebig", "batch_size": 4, "max_batch": 8}, "exclude each other"),
        (
            "launch",
            {"use_case": "simplebig", "global_batch": 4, "effective_batch": 8},
            "global_batch and effective_batch exclude each other",
        ),
        ("tune", {"use_case": "simplebig", "target": 1}, "target without objective time-to-loss"),
        ("tune", TO_LOSS | {"target": 1, "target_accuracy": 0.9}, "exclude each other"),
        ("tune", TO_LOSS | {"target_accuracy": 1.5}, "target_accuracy=1.5: expected a number"),
        ("tune", {"use_case": "simplebig", "precision": "fp8"}, "precision"),
        ("tune", {"use_case": "simplebig", "strategies": "piepline"}, "choose from"),
        ("tune", {"use_case": "simplebig", "strategies": "threads,--db=x"}, "choose from"),
        ("tune", {"use_case": "simplebig", "fresh": "yes"}, "expected true or false"),
        ("sweep", {"use_case": "simplebig"}, "batches is missing"),
        ("sweep", {"use_case": "simplebig", "batches": "8,x"}, "expected whole numbers"),
        ("sweep", {"use_case": "simplebig", "batches": "8 --db=x"}, "expected whole numbers"),
        ("sweep", {"use_case": "simplebig", "batches": "8", "plans": "worst"}, "expected whole"),
        ("sweep", {"use_case": "simplebig", "batches": "8", "plans": "1,99"}, "no plan 99"),
        ("sweep", {"use_case": "simplebig", "batches": "8", "html": "/tmp/a"}, "html is no option"),
        ("launch", {"use_case": "simplebig", "checkpoint": "/etc"}, "expected true or false"),
        ("launch", {"use_case": "simplebig", "checkpoint_every": "5m"}, "no checkpoint"),
        ("launch", {"use_case": "simplebig", "resume": True}, "resume is no option"),
        ("launch", {"use_case": "simplebig", "plan": 99}, "no plan 99"),
        ("launch", {"use_case": "simplebig", "wire": "fp8"}, "wire: choose from bf16, fp32"),
        ("probe", {"use_case": "simplebig"}, "use_case is no option"),
        ("doctor", {"use_case": "os:system"}, "/api/v1/use-cases"),
        ("doctor", {"data": "/etc"}, "data is no option"),
    ],
)
def test_a_request_can_say_nothing_else(server, kind, body, reason):
    before = server.ask("/api/v1/jobs").data
    reply = act(server, f"/api/v1/jobs/{kind}", body)
    assert reply.status == (404 if reason == "no plan 99" else 400)
    assert reason in reply.message
    assert reply.message.isprintable()
    assert server.ask("/api/v1/jobs").data == before


def test_a_use_case_may_be_named_as_the_server_was_told_of_it(acting):
    reply = acting.ask("/api/v1/jobs/doctor", body={"use_case": "mycase.py:Steady"})
    assert reply.status == 202, reply.message
    assert reply.data["request"]["use_case"] == f"{acting.folder / 'mycase.py'}:Steady"
    acting.ask(f"/api/v1/jobs/{reply.data['id']}/cancel", body={})
    other = acting.ask("/api/v1/jobs/doctor", body={"use_case": "./mycase.py:Steady"})
    assert other.status == 400


def test_jobs_on_hosts_need_hosts_that_the_server_was_started_with(server):
    reply = server.ask("/api/v1/jobs/probe", body={"on_hosts": True})
    assert reply.status == 400
    assert "--hosts" in reply.message


def test_search_that_hosts_cannot_make_is_refused_before_it_is_a_job(acting):
    """The story: a time to a loss on several hosts was accepted, and the job failed."""
    before = [job["id"] for job in acting.ask("/api/v1/jobs").data]
    reply = act(acting, "/api/v1/jobs/tune", TO_LOSS | {"on_hosts": True})
    assert reply.status == 400
    assert reply.message.startswith("--objective time-to-loss and 2 hosts: ")
    assert [job["id"] for job in acting.ask("/api/v1/jobs").data] == before


def test_what_the_document_allows_is_what_is_allowed(server):
    described = server.ask("/api/v1/openapi.json").document
    for kind in ("tune", "launch", "sweep", "probe", "doctor"):
        operation = described["paths"][f"/api/v1/jobs/{kind}"]["post"]
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        check_body = jsonschema.Draft202012Validator(
            {**schema, "components": described["components"]}
        )
        needed = {"batches": "8,16"} if kind == "sweep" else {}
        assert check_body.is_valid({"use_case": "simplebig", **needed}) == (kind != "probe")
        for wrong in ({"data": "/etc"}, {"mpirun": "/bin/sh"}, {"use_case": 1}, {"seed": -1}, []):
            assert not check_body.is_valid(wrong), (kind, wrong)


def test_a_job_that_is_not_there_cannot_be_ended(server):
    for path in (CANCEL, "/api/v1/trainings/{id}/resume", REMOVE):
        assert act(server, path, {}, 99).status == 404
        assert act(server, path, {"force": True}, 1).status == 400


def test_a_plan_goes_out_and_comes_back(server):
    exported = server.ask("/api/v1/plans/1/export")
    for body in (exported.data, exported.document):
        reply = act(server, "/api/v1/plans/import", body)
        assert reply.status == 201
        address = reply.headers["location"]
        assert address == f"/api/v1/plans/{reply.data['id']}"
        again = server.ask(f"{address}/export").data
        assert {**again, "id": 1} == exported.data

        removed = act(server, REMOVE, {}, reply.data["id"])
        assert (removed.status, removed.data) == (200, {"id": reply.data["id"]})
        assert server.ask(address).status == 404
        assert act(server, REMOVE, {}, reply.data["id"]).status == 404


@pytest.mark.parametrize(
    "change",
    [
        {"use_case": "\x1b[31m"},
        {"use_case": ""},
        {"use_case": "script:'"},
        {"node": "a" * 5000},
        {"node": None},
        {"strategy": "nothing"},
        {"processes": 0},
        {"processes": 10**30},
        {"node_batch": "128"},
        {"created_at": "yesterday"},
        {"created_at": "0001-01-01T00:00:00+23:59"},
        {"throughput_samples_per_s": {"median": 1e999, "ci_low": 1, "ci_high": 2, "samples": 1}},
        {"software": {"a\nb": "1"}},
        {"fancy": 1},
        {"__class__": "a"},
    ],
)
def test_a_plan_that_is_none_is_not_stored(server, change):
    before = server.ask("/api/v1/plans").data
    body = {**server.ask("/api/v1/plans/1/export").data, **change}
    reply = act(server, "/api/v1/plans/import", json.dumps(body).encode())
    assert reply.status == 400
    assert reply.message.isprintable()
    assert server.ask("/api/v1/plans").data == before


def test_the_queue_ends_somewhere(tmp_path, own_locks):
    """The story: requests that came at once were all counted before one of them was in it."""
    waiting = replace(
        JOB, kind=JobKind.PROBE, machine=platform.node(), process=ProcessIdentity.of()
    )
    with Store.open(str(tmp_path / "planner.db")) as store:
        for _ in range(31):
            store.jobs.add(waiting)
    with serving(tmp_path, "--allow-actions") as started:
        path = "/api/v1/jobs/probe"
        with ThreadPoolExecutor(8) as threads:
            replies = list(threads.map(lambda _: started.ask(path, body={"quick": True}), range(8)))
        queued = [reply for reply in replies if reply.status == 202]
        refused = [reply for reply in replies if reply.status == 409]
        assert (len(queued), len(refused)) == (1, 7)
        assert all("cancel one" in reply.message for reply in refused)
        number = queued[0].data["id"]
        assert started.ask(f"/api/v1/jobs/{number}/cancel", body={}).status == 202
        assert started.wait_for_job(number)["state"] == "cancelled"


def test_after_a_killed_server_everything_is_as_before(tmp_path, own_locks):
    fill(tmp_path / "planner.db")
    # For whose end the job waits.
    with machine_in_use(), serving(tmp_path, "--allow-actions") as server:
        job = server.ask("/api/v1/jobs/probe", body={"quick": False}).data
        waiting = server.ask("/api/v1/jobs/probe", body={"quick": True}).data
        before = {path: server.ask(path).data for path in stable_paths(server)}
        server.stop(signal.SIGKILL)
        server.start()
        for path, data in before.items():
            assert server.ask(path).data == data, path
        numbers = [one["id"] for one in server.ask("/api/v1/jobs").data]
        assert numbers[:2] == [waiting["id"], job["id"]]
        assert server.ask(f"/api/v1/jobs/{job['id']}").data["state"] in ("queued", "running")
        assert server.ask(f"/api/v1/jobs/{job['id']}/cancel", body={}).status == 202
        assert server.wait_for_job(job["id"])["state"] == "cancelled"
        assert server.wait_for_job(waiting["id"])["state"] == "done"
        assert [one["id"] for one in server.ask("/api/v1/jobs").data] == numbers


def stable_paths(server: Serving) -> list[str]:
    described = server.ask("/api/v1/openapi.json").document["paths"]
    paths = [path for path, methods in described.items() if "get" in methods]
    skipped = ("/events", "/openapi.json", "/jobs", "/log", "/compare")
    return [path.replace("{id}", "1") for path in paths if not path.endswith(skipped)]


@pytest.mark.long
def test_a_use_case_is_tuned_trained_cancelled_and_resumed_over_http(
    tmp_path, own_locks, probed_database
):
    shutil.copy(probed_database, tmp_path / "planner.db")
    as_root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    with serving(tmp_path, "--allow-actions", "--use-case", STEADY, *as_root) as started:

        def begin(path: str, body: dict) -> int:
            reply = started.ask(path, body=body)
            assert reply.status == 202, reply.body
            return reply.data["id"]

        tuned = begin("/api/v1/jobs/tune", {"use_case": STEADY, "budget": "5m", "trials": 0})
        assert started.wait_for_job(tuned)["state"] == "done"
        (plan,) = started.ask("/api/v1/plans").data

        options = {"plan": plan["id"], "epochs": 5000, "checkpoint": True, "checkpoint_every": "1s"}
        launched = begin("/api/v1/jobs/launch", {"use_case": STEADY, **options})

        def has_checkpoint() -> bool:
            found = started.ask("/api/v1/trainings").data
            return bool(found and found[0]["checkpoint"] and found[0]["epochs_done"])

        def running() -> dict:
            return started.ask(f"/api/v1/jobs/{launched}").data

        started.wait_for(has_checkpoint)
        started.wait_for(lambda: (running()["progress"] or {}).get("loss") is not None)
        assert running()["plan_id"] == plan["id"]
        assert running()["training_id"] is not None
        assert running()["progress"]["epochs"] == 5000
        assert started.ask(f"/api/v1/jobs/{launched}/cancel", body={}).status == 202
        assert started.wait_for_job(launched)["state"] == "cancelled"
        assert "--resume" in started.ask(f"/api/v1/jobs/{launched}/log").data["text"]
        (training,) = started.ask("/api/v1/trainings").data
        assert training["state"] == "cancelled"
        made = len(training["epochs_done"])

        resumed = begin(f"/api/v1/trainings/{training['id']}/resume", {})
        again = started.ask(f"/api/v1/trainings/{training['id']}/resume", body={})
        assert again.status == 409
        started.wait_for(lambda: len(started.ask("/api/v1/trainings").data) == 2)
        started.wait_for(has_checkpoint)
        assert started.ask(f"/api/v1/jobs/{resumed}/cancel", body={}).status == 202
        assert started.wait_for_job(resumed)["state"] == "cancelled"
        last = started.ask("/api/v1/trainings").data[0]
        assert last["epochs"] == 5000
        assert last["epochs_done"][0]["epoch"] >= made - 1  # it did not begin anew
