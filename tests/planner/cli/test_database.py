"""A database on a server, and the commands that look into databases and copy them."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing

import pytest
from postgres_server import PostgresServer, require_server

from planner.store import Store
from probes.node import probe


def test_plans_move_to_a_server_and_are_used_from_there(tuned, postgres):
    url = postgres.empty_database()
    copied = tuned.data("db", "copy", "planner.db", url)
    assert {table["name"]: table["rows"] for table in copied["tables"]}["plans"] == 1
    assert tuned.data("plans", "show", 1, "--db", url) == tuned.data("plans", "show", 1)
    assert tuned.data("trials", DDLPLAN_DB=url) == tuned.data("trials")
    found = tuned.data("db", "info", "--db", url)
    assert found["kind"].startswith("PostgreSQL ")
    assert found["tables"] == tuned.data("db", "info")["tables"]
    assert tuned.run("db", "check", "--db", url).code == 0
    assert "rows, all of them whole" in tuned.run("db", "check", "--db", url).out
    assert "already" in tuned.run("db", "copy", "planner.db", url).refusal()


def test_faults_of_a_database_are_lines_and_exit_code_6(tuned):
    with closing(sqlite3.connect(tuned.folder / "planner.db")) as connection, connection:
        connection.execute("UPDATE trials SET plan = '{}' WHERE id = 1")
    ended = tuned.run("db", "check")
    assert "1 fault: restore a copy" in ended.refusal(6)
    assert len(ended.out.splitlines()) == 1
    assert ended.out.startswith("trials 1: cannot be read: ")
    in_json = tuned.run("db", "check", "--json")
    assert in_json.refusal(6)
    assert len(in_json.document["data"]["faults"]) == 1


@pytest.mark.parametrize(
    ("url", "code", "says"),
    [
        ("postgresql://ann:secret@host/plans", 2, "~/.pgpass"),
        ("postgresql://ann@127.0.0.1:9/plans", 6, "start the server"),
    ],
)
@pytest.mark.parametrize("command", [("plans", "list"), ("db", "info"), ("tune", "--use-case")])
def test_an_address_that_cannot_be_used_is_one_line(ddlplan, cases, command, url, code, says):
    more = [f"{cases}:Steady"] if "tune" in command else []
    ended = ddlplan.run(*command, *more, "--db", url)
    assert says in ended.refusal(code)
    assert "secret" not in ended.err
    assert ddlplan.listing() == []


@pytest.mark.long
def test_a_search_goes_on_while_its_server_is_stopped_and_started(ddlplan, cases, probed_database):
    require_server()
    with PostgresServer() as server:
        url = server.make_database()
        with Store.open(str(probed_database)) as known, Store.open(url) as store:
            store.machines.save_probe(known.machines.latest_probe(probe(quick=True).fingerprint()))
        search = ddlplan.start(
            *("tune", "--use-case", f"{cases}:Steady", "--budget", "40s", "--trials", 6),
            *("--db", url),
        )
        count = "SELECT count(*) FROM trials"

        for how, least in ((server.stop, 1), (server.kill, 2)):
            while server.execute(count, url)[0][0] < least and search.poll() is None:
                time.sleep(0.2)
            how()
            time.sleep(4)
            assert search.poll() is None, "it ended before its server came back"
            server.start()
        ended = ddlplan.end(search)
        assert ended.code == 0, ended.err
        numbers = server.execute("SELECT number FROM trials ORDER BY number", url)
        assert [number for (number,) in numbers] == list(range(len(numbers)))
        assert len(server.execute("SELECT id FROM plans", url)) == 1
        assert ddlplan.run("db", "check", "--db", url).code == 0
