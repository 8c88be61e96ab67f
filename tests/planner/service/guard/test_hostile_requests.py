"""Hostile requests and stored texts are refused or escaped, and cost little memory."""

from __future__ import annotations

import html
import re
import shlex
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from filled_store import fill
from serving import Serving, serving
from unserved import unserved

from planner.service.guard.addresses import Addresses
from planner.service.requests.settings import Bounds

MIB = 2**20
SCRIPT = "<script>alert(1)</script>"
SQL = "1'; DROP TABLE plans; --"


def test_paths_lead_nowhere_else(server):
    for path in (
        "/static/../../../../etc/passwd",
        "/static/%2e%2e/%2e%2e/etc/passwd",
        "/static/..%2f..%2fetc%2fpasswd",
        "/static/..%5c..%5cetc%5cpasswd",
        "/static/%2e%2e%2fplanner.db",
        "/static//etc/passwd",
        "/static/%00",
        "/static/planner.db%00.css",
        "/../planner.db",
        "/%2e%2e/planner.db",
        "/./././planner.db",
        "/api/v1/../../planner.db",
        "/api/v1/plans/../../../token",
        "/api/v1/jobs/1/log/../../../../token",
        "/api/v1/plans/1%0d%0aX-Injected:%201",
        "/api/v1/plans/%F0%28%8C%28",
        "/api/v1/plans/%c0%ae%c0%ae",
        "/api/v1/plans/%",
        "/api/v1/plans/%zz",
        "/api/v1/plans/%u002e",
        "/api/v1/plans/1;id=2",
        "/api/v1/plans/1/",
        "//127.0.0.1/api/v1/plans",
        "/api/v1//plans",
        "/API/V1/PLANS",
        f"/api/v1/plans/{quote(SQL)}",
        f"/api/v1/plans/{quote(SCRIPT)}",
        "/api/v1/plans/-1",
        "/api/v1/plans/1.0",
        "/api/v1/plans/0x1",
        "/api/v1/plans/1e1",
        "/api/v1/plans/" + "9" * 4000,
        "/api/v1/plans/%D9%A1",
        "/" + "a/" * 2000,
    ):
        reply = server.ask(path)
        assert reply.status == 404, path
        assert "x-injected" not in reply.headers
        assert b"<script" not in reply.body
        assert server.token.encode() not in reply.body
        assert server.ask(path, token=None).status in (401, 404), path
    assert server.ask("/api/v1/plans?" + "a" * 5000).status == 414
    server.check_that_it_serves()


@pytest.mark.parametrize(
    "text",
    [
        SCRIPT,
        SQL,
        "' OR '1'='1",
        "%",
        "_",
        "\\",
        '"',
        "a" * 3000,
        "é\u202e\u2028\U0001d54f",
        "../../etc/passwd",
        "{{7*7}}",
        "${7*7}",
        "%s%s%n",
    ],
)
def test_a_hostile_parameter_finds_nothing_and_is_not_shown_raw(server, text):
    for name in ("use_case", "node"):
        for path in ("/api/v1/plans", "/api/v1/trials", "/api/v1/studies"):
            reply = server.ask(f"{path}?{name}={quote(text, safe='')}")
            assert (reply.status, reply.data) == (200, []), (path, name)
    for query in (f"{quote(text, safe='')}=1", f"limit={quote(text, safe='')}"):
        reply = server.ask(f"/api/v1/plans?{query}")
        assert reply.status == 400
        assert reply.headers["content-type"] == "application/json"
        assert reply.message.isprintable()
    assert len(server.ask("/api/v1/plans").data) == 2


@pytest.mark.parametrize("text", ["%00", "%0d%0a", "%1b[31m", "%7f", "%ff", "%ed%a0%80", "%c0%80"])
def test_control_characters_and_broken_texts_are_refused(server, text):
    assert server.ask(f"/api/v1/plans?use_case={text}").status == 404
    assert text not in server.err


def test_too_many_parameters_are_refused(server):
    assert server.ask("/api/v1/plans?" + "&".join(["a"] * 200)).status == 400
    too_many = server.ask("/?token=a&" + "&".join(["a=1"] * 200), token=None)
    assert too_many.status in (401, 429)  # where other tests have sent wrong ones
    assert "bug" not in server.err


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a":' * 50_000, "nested too deeply"),
        (b'{"a": ' + b"9" * 100_000 + b"}", "too many digits"),
        (b'{"id": 1, "id": 2}', "more than once"),
        (b'{"a": {"id": 1, "id": 2}}', "more than once"),
        (b'{"use_case": "\\ud800"}', "no UTF-8"),
        (b'{"\\udfff": 1}', "no UTF-8"),
        (b'{"a": "\xff"}', "no UTF-8"),
        ('{"a": 1}'.encode("utf-16"), "no UTF-8"),
        (b'\xef\xbb\xbf{"a": 1}', "JSON"),
        (b'{"a": NaN}', "NaN is no JSON number"),
        (b'{"a": -Infinity}', "-Infinity is no JSON number"),
        (b'{"a": 1}{"a": 2}', "extra data"),
        (b'{"a": "\x00"}', "control character"),
        (b"[]", "expected an object"),
        (b"{'a': 1}", "JSON"),
        (b"{", "JSON"),
    ],
)
def test_json_that_can_be_read_in_two_ways_is_refused(server, body, reason):
    for path in ("/api/v1/plans/import", "/api/v1/jobs/tune", "/api/v1/jobs/1/cancel"):
        reply = server.ask(path, body=body)
        assert reply.status == 400, path
        assert reason in reply.message
        assert reply.message.isprintable()
        assert len(reply.message) < 300


def test_a_million_small_things_cost_little(server):
    before = server.memory_bytes
    for body in (
        b'{"a": [' + b"[]," * 80_000 + b"[]]}",
        b"{" + b",".join(b'"%06d":1' % n for n in range(20_000)) + b"}",
        b'{"software": {' + b",".join(b'"%06d":"a"' % n for n in range(17_000)) + b"}}",
        b'{"use_case": "' + b"a" * 250_000 + b'"}',
        b'{"use_case": "' + b"\\u0001" * 40_000 + b'"}',
    ):
        assert len(body) < MIB // 4
        reply = server.ask("/api/v1/plans/import", body=body)
        assert reply.status == 400
        assert len(reply.body) < 2000
    assert server.memory_bytes - before < 200 * MIB


def test_nobody_can_say_that_he_is_someone_else(server):
    for header in ("x_forwarded_for", "forwarded", "x_real_ip", "x_forwarded_host"):
        hostile = {header: "127.0.0.1"}
        assert server.ask("/api/v1/plans", token=None, **hostile).status == 401
        assert server.ask("/api/v1/plans", host="evil.example", **hostile).status == 421


@pytest.fixture(scope="module")
def empty(tmp_path_factory, own_locks) -> Iterator[Serving]:
    """A server without a database, to which nobody has sent a wrong token."""
    with serving(tmp_path_factory.mktemp("empty")) as started:
        yield started


def test_many_wrong_tokens_have_to_wait_and_nobody_else_has_to(empty):
    replies = [
        empty.ask("/api/v1/plans", token=f"wrong-{n}", x_forwarded_for=f"192.0.2.{n}")
        for n in range(40)
    ]
    assert [reply.status for reply in replies[:10]] == [401] * 10
    assert replies[-1].status == 429
    assert 1 <= int(replies[-1].headers["retry-after"]) <= 6
    assert empty.ask("/api/v1/strategies").status == 200
    assert empty.ask("/api/v1/strategies", token=None).status == 401
    assert empty.ask("/?token=wrong", token=None).status == 429


def test_wrong_tokens_of_a_client_of_ipv4_count_for_no_other_on_a_socket_of_ipv6(tmp_path):
    ask = unserved(tmp_path, Addresses.of("::1"), Bounds(wrong_tokens=1))
    headers = {"host": "[::1]:1", "authorization": "Bearer wrong"}
    assert [ask(f"::ffff:192.0.2.{n}", headers) for n in (1, 1, 2)] == [401, 429, 401]


def test_errors_show_nothing_of_the_inside(empty):
    (empty.folder / "planner.db").write_bytes(b"this is no database at all" * 100)
    for path in ("/api/v1/plans", "/api/v1/jobs/1", "/api/v1/events", "/plans/1/plan.sh"):
        reply = empty.ask(path)
        assert reply.status == 503
        for inside in ("planner.db", str(empty.folder), "Traceback", "sqlite", "File "):
            assert inside not in reply.body.decode()
    (line, *_) = [line for line in empty.err.splitlines() if line.startswith("error: ")]
    assert "planner.db" in line
    assert "Traceback" not in empty.err
    assert empty.ask("/api/v1/strategies").status == 200


TEXTS = (
    SCRIPT,
    "\x1b[31m",
    "'\"><img src=x>",
    "\u202e\u2028",
    "; touch gone; $(touch gone) `touch gone` & | > gone #",
)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory, own_locks) -> Iterator[Serving]:
    """A server whose database is full of hostile texts."""
    folder = tmp_path_factory.mktemp("hostile")
    for text in TEXTS:
        fill(folder / "planner.db", text)
    with serving(folder, "--allow-actions") as started:
        yield started


def test_hostile_texts_in_the_database_are_escaped(hostile):
    for name in ("plans", "trials", "studies", "trainings", "jobs", "machines", "networks"):
        reply = hostile.ask(f"/api/v1/{name}")
        assert reply.status == 200
        assert reply.headers["content-type"] == "application/json"
        found = list(texts_in(reply.data))
        assert all(any(text in one for one in found) for text in TEXTS), name
        assert reply.body.isascii()
        assert reply.body.removesuffix(b"\n").decode().isprintable()
    assert hostile.err.isascii()
    assert "\x1b" not in hostile.err


def test_commands_that_pages_offer_for_copying_are_one_command_each(hostile):
    found = hostile.ask("/api/v1/openapi.json").document["paths"]
    names = [path.split("/")[3] for path in found if path.endswith("/{id}")]
    commands = []
    for name in names:
        for one in hostile.ask(f"/api/v1/{name}").data:
            page = hostile.ask(f"/{name}/{one['id']}")
            assert page.status == 200, (name, one["id"])
            commands += re.findall(r"<code>(ddlplan [^<]*)</code>", page.body.decode())
    with_names = [html.unescape(one) for one in commands if "touch gone" in one]
    assert len(with_names) >= 3
    for command in with_names:
        words = list(shlex.shlex(command, posix=True, punctuation_chars=";&|<>()`"))
        assert not {"touch", ";", "&", "|", "(", "`"} & set(words), command


def texts_in(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for inner in value.values() if isinstance(value, dict) else ():
        yield from texts_in(inner)
    for inner in value if isinstance(value, list) else ():
        yield from texts_in(inner)
