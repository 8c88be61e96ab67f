"""Signing in: tokens for one use, cookies, the token file, and what nobody gets to see of them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import psutil
import pytest
from free_ports import free_port
from serving import Serving, serving, sign_in

from planner.errors import RefusedError, UsageError
from planner.service.guard.credentials import SESSION_S, Credentials, read_token_file
from planner.service.requests.settings import ServiceSettings
from planner.service.server import serve
from tests.launch.small_files import files_of_at_most

FORM = "application/x-www-form-urlencoded"
PERSON = {"sec_fetch_site": "none", "sec_fetch_mode": "navigate", "sec_fetch_dest": "document"}


@pytest.fixture(scope="module")
def once(tmp_path_factory, own_locks):
    """A server without a token file."""
    with serving(tmp_path_factory.mktemp("once"), has_token_file=False) as started:
        yield started


def newest_path(server: Serving) -> str:
    addresses = re.findall(r"^http://\S+$", server.out, re.MULTILINE)
    return addresses[-1].removeprefix(f"http://127.0.0.1:{server.port}")


def post_form(server: Serving, origin: str | None = "", **fields: str):
    own = f"http://127.0.0.1:{server.port}"
    return server.ask(
        "/sign-in",
        body=urlencode(fields).encode(),
        token=None,
        content_type=FORM,
        origin=own if origin == "" else origin,
    )


def test_the_address_is_good_once_and_leads_to_one_without_a_token(once):
    path = newest_path(once)
    assert re.fullmatch(r"/\?token=[\w-]{43}", path)
    reply = once.ask(path, token=None, **PERSON)
    assert (reply.status, reply.headers["location"]) == (303, "/")
    cookie, *flags = reply.headers["set-cookie"].split("; ")
    assert cookie.startswith(f"ddlplan-{once.port}=")
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(flags)
    assert path.partition("=")[2] not in str(reply)
    assert once.ask("/api/v1/plans", token=None, cookie=cookie).status == 200

    again = once.ask(path, token=None, **PERSON)
    assert again.status == 401
    assert "set-cookie" not in again.headers
    assert once.ask(path, token=None, cookie=cookie).headers["location"] == "/"  # a reload


def test_another_browser_gets_an_address_of_its_own(once):
    first = newest_path(once)
    once.ask(first, token=None, **PERSON)
    second = newest_path(once)
    assert second != first
    assert once.ask(second, token=None, **PERSON).status == 303


def test_the_token_of_the_address_is_no_token_of_scripts(once):
    token = newest_path(once).partition("=")[2]
    assert once.ask("/api/v1/plans", token=token).status == 401
    assert once.ask(f"/api/v1/plans?token={token}", token=None).status == 401
    assert once.ask("/", token=None, cookie=f"ddlplan-{once.port}={token}").status == 401


def test_a_program_that_only_looks_does_not_use_the_address_up(once):
    path = newest_path(once)
    for method in ("GET", "HEAD"):
        assert once.ask(path, token=None, method=method).status == 200
    assert once.ask(path, token=None, **PERSON, sec_purpose="prefetch").status == 200
    button = once.ask(path, token=None)
    assert "set-cookie" not in button.headers
    (token,) = re.findall(r'name="token" value="([\w-]+)"', button.body.decode())
    pressed = post_form(once, token=token)
    assert (pressed.status, pressed.headers["location"]) == (303, "/")
    assert post_form(once, token=token).status == 401


def test_a_link_of_another_site_signs_in_by_a_page_of_its_own(once):
    reply = once.ask(newest_path(once), token=None, **PERSON | {"sec_fetch_site": "cross-site"})
    assert reply.status == 200
    assert "set-cookie" in reply.headers
    assert b'http-equiv="refresh" content="0; url=/"' in reply.body


@pytest.mark.parametrize("origin", [None, "http://evil.example", "null"])
def test_another_site_cannot_sign_in_for_a_person(server, origin):
    assert post_form(server, origin=origin, token=server.token).status == 403


def test_the_token_of_the_file_signs_in_and_leads_on(server):
    reply = post_form(server, token=f" {server.token}\n", next="/plans/1?show=all")
    assert (reply.status, reply.headers["location"]) == (303, "/plans/1?show=all")
    assert server.token not in str(reply)


@pytest.mark.parametrize(
    "there",
    [
        "//evil.example",
        "http://evil.example",
        "/\\evil.example",
        "javascript:alert(1)",
        "/a\r\nSet-Cookie: a=b",
        "/%0d%0aSet-Cookie: a=b",
        "",
        "/" + "a" * 3000 + "\x00",
    ],
)
def test_signing_in_leads_nowhere_else(server, there):
    reply = post_form(server, token=server.token, next=there)
    assert (reply.status, reply.headers["location"]) == (303, "/")
    assert reply.headers["set-cookie"].startswith("ddlplan-")


def test_the_form_leads_back_to_the_page_that_was_asked_for(server):
    reply = server.ask("/plans/1?show=%3Cscript%3E", token=None)
    assert reply.status == 401
    assert b'value="/plans/1?show=%3Cscript%3E"' in reply.body
    assert "bearer" in reply.headers["www-authenticate"].lower()


def test_a_cookie_that_was_changed_is_none(server, cookie):
    name, _, value = cookie.partition("=")
    time, nonce, signature = value.split(".")
    for wrong in (
        f"{int(time) + 1}.{nonce}.{signature}",
        f"{time}.{nonce}.{signature[:-1]}0" if signature[-1] != "0" else f"{time}.{nonce}.0",
        f"{time}.{nonce}.",
        f"{time}.{nonce}",
        "",
        "." * 400,
        f"{'9' * 300}.{nonce}.{signature}",
    ):
        assert server.ask("/api/v1/plans", token=None, cookie=f"{name}={wrong}").status == 401
    assert server.ask("/api/v1/plans", token=None, cookie=f"ddlplan-1={value}").status == 401
    assert server.ask("/api/v1/plans", token=None, cookie=f"a=b; {cookie}; c").status == 200


def test_a_cookie_ends_and_is_good_at_its_own_server_alone():
    now = 1_000_000.0
    ours = Credentials("a" * 32, clock=lambda: now)
    cookie = ours.make_cookie()
    assert ours.is_cookie(cookie)
    assert Credentials("a" * 32, clock=lambda: now + SESSION_S - 1).is_cookie(cookie)
    assert not Credentials("a" * 32, clock=lambda: now + SESSION_S).is_cookie(cookie)
    assert not Credentials("b" * 32, clock=lambda: now).is_cookie(cookie)
    assert not Credentials(clock=lambda: now).is_cookie(cookie)


def test_without_a_token_file_no_token_is_right():
    assert not Credentials().is_token("")
    assert not Credentials().is_once("")
    assert not Credentials("a" * 32).is_once("a" * 32)


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o660, 0o604])
def test_a_token_file_that_others_may_read_is_refused(tmp_path, mode):
    file = tmp_path / "token"
    file.write_text("a" * 43)
    file.chmod(mode)
    with pytest.raises(RefusedError, match=f"chmod 600 {file}") as refused:
        read_token_file(file)
    assert "a" * 43 not in str(refused.value)


@pytest.mark.parametrize(
    "content", [b"", b"short", b"a" * 600, b"a" * 20 + b" " + b"b" * 20, b"\xff" * 40]
)
def test_a_token_file_without_a_good_token_is_refused(tmp_path, content):
    file = tmp_path / "token"
    file.write_bytes(content)
    file.chmod(0o600)
    with pytest.raises(UsageError, match="32 to 512 printable characters"):
        read_token_file(file)


def test_a_token_file_is_a_file(tmp_path):
    os.mkfifo(tmp_path / "fifo", 0o600)
    for name in ("fifo", ".", "nowhere/token", "a" * 300):
        with pytest.raises(UsageError, match="name another file"):
            read_token_file(tmp_path / name)


def test_a_full_disk_leaves_no_part_of_a_token_file(tmp_path):
    """The next start refused the file of the one before, which was empty."""
    with files_of_at_most(9), pytest.raises(UsageError, match="name another file"):
        read_token_file(tmp_path / "token")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "vm.example"])
def test_an_address_that_others_can_reach_needs_a_token_file(host):
    with pytest.raises(UsageError, match="--token-file"):
        serve(ServiceSettings(host=host), on_address=lambda _: pytest.fail("it listens"))


def test_a_server_that_others_could_use_is_not_started(ddlplan):
    (ddlplan.folder / "readable").write_text("a" * 43)
    (ddlplan.folder / "readable").chmod(0o644)
    ended = ddlplan.run("serve", "--token-file", "readable")
    assert "chmod 600 readable" in ended.refusal(7)
    assert ended.out == ""


def test_a_token_file_is_made_and_its_cookies_are_good_after_a_restart(tmp_path, own_locks):
    file = tmp_path / "token"
    options = ["--token-file", str(file), "--port", str(free_port())]
    with serving(tmp_path, *options, has_token_file=False) as first:
        assert file.stat().st_mode & 0o777 == 0o600
        assert "token=" not in first.out
        first.token = file.read_text().strip()
        assert first.ask("/api/v1/plans").status == 200
        cookie = sign_in(first)
        first.stop()
    with serving(tmp_path, *options, has_token_file=False) as second:
        assert file.read_text().strip() == first.token
        assert second.ask("/api/v1/plans", token=None, cookie=cookie).status == 200


def test_nothing_secret_is_written_or_in_a_list_of_processes(server):
    cookie, wrong = sign_in(server), "a-wrong-token-of-somebody"
    server.ask("/api/v1/plans", token=None, cookie=cookie)
    server.ask(f"/?token={wrong}", token=None, **PERSON)
    server.ask("/api/v1/plans", token=wrong)
    job = server.ask("/api/v1/jobs/probe", body={"quick": True}).data
    lines = list(command_lines())
    job = server.wait_for_job(job["id"])
    lines += command_lines()
    written = server.out + server.err + (Path(job["folder"]) / "log").read_text()
    for secret in (server.token, cookie.partition("=")[2], wrong):
        assert secret not in written
        assert not any(secret in line for line in lines)


def test_signing_in_works_when_nobody_reads_what_the_server_prints(tmp_path, own_locks):
    # The token for one use was used up by a request that then failed, as by a broken pipe.
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "planner", "serve"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        address = urlsplit(process.stdout.readline().strip())
        while "Ctrl-C" not in process.stderr.readline():
            pass
        process.stdout.close()
        process.stderr.close()
        connection = HTTPConnection(address.netloc, timeout=60)
        person = {name.replace("_", "-"): value for name, value in PERSON.items()}
        connection.request("GET", f"/?{address.query}", headers=person)
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (303, b"")
        cookie = answer.headers["set-cookie"].partition(";")[0]
        (tmp_path / "planner.db").write_bytes(b"no database at all" * 100)
        connection.request("GET", "/api/v1/plans", headers={"cookie": cookie})
        assert connection.getresponse().status == 503
        connection.close()
    finally:
        process.kill()
        process.wait()


def command_lines() -> Iterator[str]:
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            yield " ".join(process.cmdline())
