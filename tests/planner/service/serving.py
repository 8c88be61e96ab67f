"""A real server for tests: `ddlplan serve` as a process, asked over real sockets."""

from __future__ import annotations

import http.client
import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import jsonschema
import psutil

GUARD_S = 240.0
JSON = "application/json"
CASES = Path(__file__).parents[1] / "steady_cases.py"
STEADY = f"{CASES}:Steady"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer."""

    status: int
    headers: Mapping[str, str]
    """By their names in small letters."""

    body: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.body)

    @property
    def data(self) -> Any:
        return self.document["data"]

    @property
    def message(self) -> str:
        return self.document["error"]["message"]


class Serving:
    """A server that runs in a folder of its own.

    Args:
        folder: Where it runs; its database is ``planner.db``, its output is in ``out`` and ``err``.
        options: Further ones.
        has_token_file: Whether it is started with one.
        environment: Its environment; that of this process by default.
    """

    def __init__(
        self,
        folder: Path,
        *options: object,
        has_token_file: bool = True,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        self.folder = folder
        self.options = options
        self.token = write_token(folder) if has_token_file else ""
        if has_token_file:
            self.options += ("--token-file", folder / "token")
        self.environment = environment
        self.start()

    def start(self) -> None:
        """Start it, once more where it has ended, and wait for its address."""
        with (self.folder / "out").open("wb") as out, (self.folder / "err").open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "planner", "serve", *map(str, self.options)],
                cwd=self.folder,
                env={**self.environment, "PYTHONUNBUFFERED": "1"},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )
        self.wait_for(lambda: "\n" in self.out)
        self.address = self.out.split()[0]
        self.port = int(self.address.split(":")[2].split("/")[0])

    @property
    def out(self) -> str:
        return (self.folder / "out").read_text()

    @property
    def err(self) -> str:
        return (self.folder / "err").read_text()

    @property
    def memory_bytes(self) -> int:
        return psutil.Process(self.process.pid).memory_info().rss

    def ask(
        self,
        path: str,
        *,
        method: str | None = None,
        body: Any = None,
        token: str | None = "",
        **headers: str | None,
    ) -> Reply:
        """Send a request: a POST where there is a body, which is sent as JSON.

        Args:
            path: With its query.
            method: Another one than GET or POST.
            body: Bytes, or what becomes JSON.
            token: Of the token file by default; ``None`` sends none.
            headers: With underscores; ``None`` leaves one out.
        """
        given: dict[str, str | None] = {"host": f"127.0.0.1:{self.port}"}
        if token is not None:
            given["authorization"] = f"Bearer {token or self.token}"
        if body is not None:
            body = body if isinstance(body, bytes) else json.dumps(body).encode()
            given["content-type"] = JSON
            given["content-length"] = str(len(body))
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=GUARD_S)
        try:
            connection.putrequest(
                method or ("GET" if body is None else "POST"),
                path,
                skip_host=True,
                skip_accept_encoding=True,
            )
            for name, value in given.items():
                if value is not None:
                    connection.putheader(name, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Reply(status=answer.status, headers=found, body=_body(answer))
        except ConnectionError as error:
            time.sleep(1)  # a server that ends closes its connections first
            error.add_note(f"exit code of the server: {self.process.poll()}; {self.err[-2000:]}")
            raise
        finally:
            connection.close()

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=GUARD_S)

    def send_raw(self, request: bytes) -> bytes:
        """Send bytes and give all that comes back until the server closes the connection."""
        with self.connect() as connection:
            connection.sendall(request)
            return read_all(connection)

    def head(self, *lines: str, method: str = "GET", path: str = "/api/v1/plans") -> bytes:
        """Give the head of a request with the right host and token."""
        text = [f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{self.port}"]
        text += [f"Authorization: Bearer {self.token}", *lines, "", ""]
        return "\r\n".join(text).encode("latin-1")

    def check_that_it_serves(self) -> None:
        assert self.process.poll() is None, self.err
        assert self.ask("/api/v1/strategies").status == 200

    def wait_for_job(self, number: int) -> Any:
        """Wait until a job is over and give it."""
        found: Any = {}

        def is_over() -> bool:
            nonlocal found
            found = self.ask(f"/api/v1/jobs/{number}").data
            return found["ended_at"] is not None

        self.wait_for(is_over)
        return found

    def stop(self, number: int = signal.SIGTERM) -> int:
        """End it and give its exit status."""
        self.process.send_signal(number)
        return self.process.wait(GUARD_S)

    def wait_for(self, is_so: Callable[[], object]) -> None:
        deadline = time.monotonic() + GUARD_S
        while not is_so():
            assert self.process.poll() is None, self.err
            assert time.monotonic() < deadline, "waited in vain"
            time.sleep(0.1)  # most of these looks are requests, which the server has to answer


def _body(answer: http.client.HTTPResponse) -> bytes:
    """Read a body, or what there is of that of a refusal.

    A server that refuses a request before it has read all of it, and closes, resets the connection:
    RFC 9112, 9.6.
    """
    body = b""
    try:
        while block := answer.read(1 << 16):
            body += block
    except ConnectionResetError:
        if answer.status < 400:
            raise
    return body


def sign_in(server: Serving) -> str:
    """Sign in with the token of the token file and give the cookie as a browser sends it."""
    reply = server.ask(
        "/sign-in",
        method="POST",
        body=urlencode({"token": server.token, "next": "/"}).encode(),
        token=None,
        content_type="application/x-www-form-urlencoded",
        origin=f"http://127.0.0.1:{server.port}",
    )
    assert reply.status == 303, reply
    return reply.headers["set-cookie"].partition(";")[0]


@cache
def _description(server: Serving) -> Any:
    """The document in which a server describes its answers."""
    return server.ask("/api/v1/openapi.json").document


def check_answer(server: Serving, path: str, method: str, reply: Reply) -> None:
    """Hold an answer against the document in which the server describes it."""
    described = _description(server)
    operation = described["paths"][path][method]
    schema = operation["responses"][str(reply.status)]["content"]["application/json"]["schema"]
    whole = {**schema, "components": described["components"]}
    jsonschema.Draft202012Validator(whole).validate(reply.document)


def act(server: Serving, path: str, body: Any, number: object = None) -> Reply:
    """Send an action, of a thing with a number or of none, and check the form of the answer."""
    reply = server.ask(path.replace("{id}", str(number)), body=body)
    check_answer(server, path, "post", reply)
    return reply


def read_all(connection: socket.socket) -> bytes:
    """Read until the other side closes the connection."""
    found = bytearray()
    try:
        while part := connection.recv(65536):
            found += part
    except ConnectionError:
        pass
    return bytes(found)


def statuses(answer: bytes) -> list[int]:
    """Give the statuses of all answers in what came over a connection."""
    return [int(status) for status in re.findall(rb"HTTP/1\.1 ([0-9]{3}) ", answer)]


def write_token(folder: Path) -> str:
    """Make the file ``token`` in a folder, readable by its owner alone, and give its content."""
    token = secrets.token_urlsafe(32)
    file = folder / "token"
    file.touch(mode=0o600)
    file.write_text(f"{token}\n")
    return token


@contextmanager
def serving(folder: Path, *options: object, **settings: Any) -> Iterator[Serving]:
    """Start a server and end it."""
    server = Serving(folder, *options, **settings)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.process.kill()
            server.process.wait()
