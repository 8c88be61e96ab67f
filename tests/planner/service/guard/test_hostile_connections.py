"""Bytes that are no request, and clients that send or read slowly: others are served meanwhile."""

from __future__ import annotations

import asyncio
import socket
import threading
from contextlib import suppress

import psutil
import pytest
import uvicorn
from filled_store import fill
from serving import GUARD_S, Serving, read_all, serving, statuses
from uvicorn.server import ServerState

from planner.service.connection import connection_class
from planner.service.requests.settings import Bounds

MIB = 2**20

REFUSED = {400, 401, 403, 404, 405, 408, 411, 413, 414, 415, 421, 431, 501, 505}


def test_a_body_that_is_too_large_is_refused_unread(server):
    before = server.memory_bytes
    post = {"method": "POST", "path": "/api/v1/plans/import"}
    for line in ("Content-Length: 1073741824", "Transfer-Encoding: chunked"):
        head = server.head("Content-Type: application/json", line, **post)
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


def test_clients_that_read_nothing_make_room_for_others():
    """The story: as many of them as there may be connections kept everybody else out."""
    request = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"

    async def answer(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": bytes(8 * MIB), "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def ask_beside_two() -> bytes:
        bounded = connection_class(Bounds(connections=2))
        config = uvicorn.Config(answer, http=bounded, ws="none", log_config=None)
        config.load()
        state = ServerState()
        server = await asyncio.get_running_loop().create_server(
            lambda: config.http_protocol_class(config=config, server_state=state, app_state={}),
            *("127.0.0.1", 0),
        )
        where = server.sockets[0].getsockname()
        silent = [socket.create_connection(where) for _ in range(2)]
        for one in silent:
            one.sendall(request)
        while sum(one.transport.get_write_buffer_size() > 0 for one in state.connections) < 2:
            await asyncio.sleep(0.01)
        reader, writer = await asyncio.open_connection(*where)
        writer.write(request)
        line = await reader.readline()
        for connection in list(state.connections):
            connection.transport.abort()
        server.close()
        for one in (*silent, writer):
            one.close()
        return line

    assert asyncio.run(asyncio.wait_for(ask_beside_two(), GUARD_S)) == b"HTTP/1.1 200 OK\r\n"


@pytest.mark.long
def test_slow_clients_and_who_reads_nothing_are_ended_and_others_are_served_meanwhile(
    tmp_path, own_locks
):
    fill(tmp_path / "planner.db")
    with serving(tmp_path, "--allow-actions") as started:
        before = started.memory_bytes
        head = started.head(
            "Content-Type: application/json",
            "Content-Length: 1000000",
            method="POST",
            path="/api/v1/plans/import",
        )
        answer = started.head(path="/api/v1/trials?limit=500")
        stop = threading.Event()
        silent, *connections = [started.connect() for _ in range(201)]
        silent.sendall(answer * 500)
        for number, connection in enumerate(connections):
            connection.sendall((b"GET / HTTP/1.1\r\n", head, answer * 200, b"")[number % 4])

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
            # And those whose answers nobody reads.
            started.wait_for(lambda: not open_connections(started))
        finally:
            stop.set()
            sender.join()
        started.check_that_it_serves()
        for connection in (silent, *connections):
            connection.close()


def open_connections(server: Serving) -> list[object]:
    found = psutil.Process(server.process.pid).net_connections("tcp")
    return [one for one in found if one.status == psutil.CONN_ESTABLISHED]
