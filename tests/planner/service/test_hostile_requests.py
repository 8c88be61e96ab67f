"""Hostile requests are refused or escaped, cost little memory, and others are served meanwhile."""

from __future__ import annotations

import html
import re
import shlex
import threading
from collections.abc import Iterator
from contextlib import suppress
from urllib.parse import quote

import psutil
import pytest
from filled_store import fill
from serving import Serving, read_all, serving, statuses

MIB = 2**20
SCRIPT = "<script>alert(1)</script>"
SQL = "1'; DROP TABLE plans; --"
REFUSED = {400, 401, 403, 404, 405, 408, 411, 413, 414, 415, 421, 431, 501, 505}


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


def json_body(server: Serving, body: bytes, path: str = "/api/v1/plans/import"):
    return server.ask(path, body=body)


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
        (b"null", "expected an object"),
        (b'"text"', "expected an object"),
        (b"{'a': 1}", "JSON"),
        (b"{", "JSON"),
        (b"<a/>", "JSON"),
    ],
)
def test_json_that_can_be_read_in_two_ways_is_refused(server, body, reason):
    for path in ("/api/v1/plans/import", "/api/v1/jobs/tune", "/api/v1/jobs/1/cancel"):
        reply = json_body(server, body, path)
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
        reply = json_body(server, body)
        assert reply.status == 400
        assert len(reply.body) < 2000
    assert server.memory_bytes - before < 200 * MIB


def test_a_body_that_is_too_large_is_refused_unread(server):
    before = server.memory_bytes
    for head in (
        server.head(
            "Content-Type: application/json",
            "Content-Length: 1073741824",
            method="POST",
            path="/api/v1/plans/import",
        ),
        server.head(
            "Content-Type: application/json",
            "Transfer-Encoding: chunked",
            method="POST",
            path="/api/v1/plans/import",
        ),
    ):
        with server.connect() as connection:
            connection.sendall(head)
            block = b"10000\r\n" + b"a" * 65536 + b"\r\n"
            with suppress(OSError):
                for _ in range(1024):  # 64 MiB of a gigabyte
                    connection.sendall(block)
            connection.settimeout(60)
            assert b" 413 " in connection.recv(4096)
    assert server.memory_bytes - before < 64 * MIB
    server.check_that_it_serves()


def test_bytes_that_look_like_a_second_request_are_none(server):
    second = server.head(path="/api/v1/strategies").decode()
    post = {"method": "POST", "path": "/api/v1/jobs/1/cancel"}
    for lines in (
        ("Content-Length: 2", "Content-Length: 300"),
        ("Content-Length: 2, 300",),
        ("Content-Length: +2",),
        ("Content-Length: -2",),
        ("Content-Length: 0x2",),
        ("Content-Length: 2", "Transfer-Encoding: chunked"),
        ("Transfer-Encoding: chunked", "Content-Length: 2"),
        ("Transfer-Encoding: chunked, identity",),
        ("Transfer-Encoding: xchunked",),
        ("Transfer-Encoding:\x0bchunked",),
        ("Transfer-Encoding: chunked", "Transfer-Encoding: identity"),
        ("Transfer-Encoding: gzip, chunked",),
        ("Content-Length : 2",),
        (" Content-Length: 2",),
        ("Content-Length: 2\n X: y",),
        ("Content\x00-Length: 2",),
    ):
        head = server.head("Content-Type: application/json", *lines, **post)
        answers = statuses(server.send_raw(head + b"{}" + second.encode()))
        assert set(answers) <= REFUSED, (lines, answers)
    server.check_that_it_serves()


def test_pipelined_requests_are_answered_in_order(server):
    requests = server.head(path="/api/v1/plans/1") + server.head(path="/api/v1/plans/99")
    answer = server.send_raw(requests + server.head("Connection: close"))
    assert statuses(answer) == [200, 404, 200]


@pytest.mark.parametrize(
    "request_line",
    [
        "GET http://evil.example/api/v1/plans HTTP/1.1",
        "GET http://127.0.0.1/api/v1/plans HTTP/1.1",
        "GET @evil.example/ HTTP/1.1",
        "GET api/v1/plans HTTP/1.1",
        "GET *  HTTP/1.1",
        "OPTIONS * HTTP/1.1",
        "CONNECT evil.example:443 HTTP/1.1",
        "GET /api/v1/plans",
        "GET /api/v1/plans HTTP/0.9",
        "GET /api/v1/plans HTTP/2.0",
        "GET /api/v1/plans HTTP/1.1 HTTP/1.1",
        "GET /api/v1/plans\tHTTP/1.1",
        "GET /api/v1/ plans HTTP/1.1",
        "G\x00T /api/v1/plans HTTP/1.1",
        "GET /api/v1/plans\x00 HTTP/1.1",
        "GET /api/v1/plans\xff HTTP/1.1",
        "PRI * HTTP/2.0",
        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        "",
    ],
)
def test_a_request_line_that_is_none_is_refused(server, request_line):
    head = server.head("Connection: close").split(b"\r\n", 1)[1]
    answer = server.send_raw(request_line.encode("latin-1") + b"\r\n" + head)
    assert set(statuses(answer)) <= REFUSED
    assert b'"data"' not in answer
    server.check_that_it_serves()


@pytest.mark.parametrize(
    "line",
    [
        "X: " + "a" * 20_000,
        "X: " + "a" * 100_000,
        "\r\n".join(f"X-{n}: a" for n in range(70)),
        "Host: evil.example",
        "Authorization: Bearer a",
        "Cookie: a=b\r\nCookie: c=d",
        "X: a\x00b",
        "X\r\n",
        ": a",
    ],
)
def test_a_header_that_is_none_is_refused(server, line):
    answer = server.send_raw(server.head(line, "Connection: close"))
    assert set(statuses(answer)) <= REFUSED
    assert b'"data"' not in answer
    server.check_that_it_serves()


def test_nobody_can_say_that_he_is_someone_else(server):
    for header in ("x_forwarded_for", "forwarded", "x_real_ip", "x_forwarded_host"):
        hostile = {header: "127.0.0.1"}
        assert server.ask("/api/v1/plans", token=None, **hostile).status == 401
        assert server.ask("/api/v1/plans", host="evil.example", **hostile).status == 421


def test_many_wrong_tokens_have_to_wait_and_nobody_else_has_to(tmp_path, own_locks):
    with serving(tmp_path) as started:
        replies = [
            started.ask("/api/v1/plans", token=f"wrong-{n}", x_forwarded_for=f"192.0.2.{n}")
            for n in range(40)
        ]
        assert [reply.status for reply in replies[:10]] == [401] * 10
        assert replies[-1].status == 429
        assert 1 <= int(replies[-1].headers["retry-after"]) <= 6
        assert started.ask("/api/v1/strategies").status == 200
        assert started.ask("/api/v1/strategies", token=None).status == 401
        assert started.ask("/?token=wrong", token=None).status == 429


def test_a_bad_chunk_after_the_answer_ends_the_connection_without_a_word(server):
    before = server.err
    head = server.head("Transfer-Encoding: chunked", method="POST", path="/api/v1/plans")
    with server.connect() as connection:
        connection.sendall(head)
        assert b" 405 " in connection.recv(4096)
        connection.sendall(b"no chunk at all\r\n")
        read_all(connection)
    server.check_that_it_serves()
    assert server.err == before


def test_errors_show_nothing_of_the_inside(tmp_path, own_locks):
    with serving(tmp_path) as started:
        (tmp_path / "planner.db").write_bytes(b"this is no database at all" * 100)
        for path in ("/api/v1/plans", "/api/v1/jobs/1", "/api/v1/events"):
            reply = started.ask(path)
            assert reply.status == 503
            for inside in ("planner.db", str(tmp_path), "Traceback", "sqlite", "File "):
                assert inside not in reply.body.decode()
        assert "planner.db" in started.err
        assert "Traceback" not in started.err
        assert started.ask("/api/v1/strategies").status == 200


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


@pytest.mark.long
def test_slow_clients_are_ended_and_others_are_served_meanwhile(tmp_path, own_locks):
    fill(tmp_path / "planner.db")
    with serving(tmp_path, "--allow-actions") as started:
        before = started.memory_bytes
        head = started.head(
            "Content-Type: application/json",
            "Content-Length: 1000000",
            method="POST",
            path="/api/v1/plans/import",
        )
        answer = started.head(path="/api/v1/trials?limit=500") * 200
        stop = threading.Event()
        connections = [started.connect() for _ in range(200)]
        for number, connection in enumerate(connections):
            connection.sendall((b"GET / HTTP/1.1\r\n", head, answer, b"")[number % 4])

        def send_slowly() -> None:
            while not stop.wait(0.5):
                for number, connection in enumerate(connections):
                    if number % 4 < 2:
                        with suppress(OSError):
                            connection.sendall(b"a")

        sender = threading.Thread(target=send_slowly)
        sender.start()
        try:
            for _ in range(50):
                assert started.ask("/api/v1/plans").status == 200
            assert started.memory_bytes - before < 128 * MIB
            for number, connection in enumerate(connections):
                if number % 4 != 2:
                    read_all(connection)  # the server ends it
        finally:
            stop.set()
            sender.join()
        for connection in connections:
            connection.close()
        started.check_that_it_serves()


@pytest.mark.long
def test_who_reads_nothing_is_ended(tmp_path, own_locks):
    fill(tmp_path / "planner.db")
    with serving(tmp_path) as started:
        with started.connect() as connection:
            connection.sendall(started.head(path="/api/v1/trials?limit=500") * 500)
            connection.settimeout(0.1)
            started.wait_for(lambda: not open_connections(started))
        started.check_that_it_serves()


def open_connections(server: Serving) -> list[object]:
    found = psutil.Process(server.process.pid).net_connections("tcp")
    return [one for one in found if one.status == psutil.CONN_ESTABLISHED]
