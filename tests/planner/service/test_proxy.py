"""Behind nginx and at the other end of ssh -L the service works as it does here."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.request import Request, urlopen

import pytest
from browsers import chromium
from filled_store import fill
from free_ports import free_port
from places import NAME, Proxy, nginx_before, require, ssh_forward
from serving import GUARD_S, Serving, serving

from planner.api import plans


@dataclass(frozen=True, slots=True)
class Answer:
    """What curl got."""

    status: int
    headers: str
    body: str

    @property
    def data(self):
        return json.loads(self.body)["data"]


@dataclass(frozen=True, slots=True)
class Behind:
    """A server with a token file behind nginx."""

    server: Serving
    proxy: Proxy

    def curl(self, path: str, *options: str, url: str | None = None, stdin: str = "") -> Answer:
        return curl((url or self.proxy.url) + path, *self.to_proxy, *options, stdin=stdin)

    def by_token(self, path: str, *options: str) -> Answer:
        """Send the token by standard input, so that no list of processes has it."""
        return self.curl(
            path, "--header", "@-", *options, stdin=f"Authorization: Bearer {self.server.token}"
        )

    @property
    def to_proxy(self) -> list[str]:
        return [
            *("--resolve", f"{NAME}:{self.proxy.port}:127.0.0.1"),
            *("--resolve", f"{NAME}:{self.proxy.plain_port}:127.0.0.1"),
            *("--cacert", str(self.proxy.certificate)),
        ]


def curl(url: str, *options: str, stdin: str = "") -> Answer:
    command = [require("curl", package="curl"), "--silent", "--show-error", "--include", *options]
    ended = subprocess.run(
        [*command, url], input=stdin, capture_output=True, text=True, timeout=GUARD_S
    )
    assert ended.returncode == 0, ended.stderr
    headers, _, body = ended.stdout.replace("\r\n", "\n").partition("\n\n")
    return Answer(int(headers.split()[1]), headers.lower(), body)


@pytest.fixture(scope="module")
def behind(tmp_path_factory, own_locks) -> Iterator[Behind]:
    folder = tmp_path_factory.mktemp("served")
    fill(folder / "planner.db")
    server_port, port, plain_port = free_port(), free_port(), free_port()
    with nginx_before(
        folder / "nginx", server_port=server_port, port=port, plain_port=plain_port
    ) as proxy:
        options = ("--port", server_port, "--public-url", proxy.url, "--allow-actions")
        with serving(folder, *options) as server:
            yield Behind(server, proxy)
            assert server.stop() == 0


@pytest.fixture
def jar(behind, tmp_path) -> list[str]:
    """Options of curl with which it is signed in."""
    (tmp_path / "typed").write_text(behind.server.token)
    cookies = ["--cookie", str(tmp_path / "cookies"), "--cookie-jar", str(tmp_path / "cookies")]
    answer = behind.curl(
        "/sign-in",
        *cookies,
        *("--header", f"Origin: {behind.proxy.url}", "--data", "next=/"),
        *("--data-urlencode", f"token@{tmp_path / 'typed'}"),
    )
    assert answer.status == 303, answer.body
    assert "; secure" in answer.headers
    return cookies


def test_the_server_says_the_address_of_the_proxy(behind):
    assert behind.server.address == f"{behind.proxy.url}/"


def test_plain_http_leads_to_tls(behind):
    answer = behind.curl("/plans?x=1", url=f"http://{NAME}:{behind.proxy.plain_port}")
    assert answer.status == 301
    assert f"location: {behind.proxy.url}/plans?x=1" in answer.headers


def test_a_browser_is_asked_for_the_token_and_then_let_in(behind, jar):
    asked = behind.curl("/")
    assert asked.status == 401
    assert 'name="token"' in asked.body
    page = behind.curl("/", *jar)
    assert page.status == 200
    assert "http/2" in page.headers
    assert "strict-transport-security:" in page.headers
    assert "content-security-policy:" in page.headers


def test_a_script_sends_the_token(behind):
    assert [plan["id"] for plan in behind.by_token("/api/v1/plans").data][-1] == 1
    exported = behind.by_token("/api/v1/plans/1/export?format=torchrun").data
    assert exported["format"] == "torchrun"
    assert "torchrun --standalone" in exported["text"]
    assert behind.curl("/api/v1/plans").status == 401


def test_a_page_of_another_name_or_origin_is_refused(behind, jar):
    assert behind.curl("/", "--header", "Host: evil.example").status == 421
    foreign = behind.curl("/api/v1/plans", *jar, "--header", "Origin: https://evil.example")
    assert foreign.status == 403
    plain = behind.curl("/api/v1/plans", *jar, "--header", f"Origin: http://{NAME}")
    assert plain.status == 403


def test_an_event_comes_through_while_the_stream_is_open(behind, jar):
    exported = behind.by_token("/api/v1/plans/1/export").data
    again = behind.server.folder / "again.json"
    again.write_text(json.dumps(exported))
    command = [
        *(require("curl", package="curl"), "--silent", "--no-buffer", *behind.to_proxy, *jar),
        f"{behind.proxy.url}/api/v1/events",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as stream:
        try:
            assert stream.stdout.readline().startswith("retry:")
            plans.import_file(again, db=str(again.with_name("planner.db")))
            seen = ""
            while '"topic"' not in seen:
                seen = stream.stdout.readline()
                assert seen, "the stream has ended"
            assert stream.poll() is None
        finally:
            stream.terminate()


def test_actions_are_for_pages_of_the_server_and_for_scripts_with_the_token(behind, jar, tmp_path):
    document = tmp_path / "plan.json"
    document.write_text(json.dumps(behind.by_token("/api/v1/plans/1/export").data))
    post = ["--header", "Content-Type: application/json", "--data", f"@{document}"]
    own, foreign = f"Origin: {behind.proxy.url}", "Origin: https://evil.example"
    assert behind.curl("/api/v1/plans/import", *jar, *post).status == 403
    assert behind.curl("/api/v1/plans/import", *jar, *post, "--header", foreign).status == 403
    stored = behind.curl("/api/v1/plans/import", *jar, *post, "--header", own)
    assert stored.status in (200, 201)
    removed = behind.by_token(
        f"/api/v1/plans/{stored.data['id']}/remove",
        *("--header", "Content-Type: application/json", "--data", ""),
    )
    assert removed.data == {"id": stored.data["id"]}


def test_wrong_tokens_are_counted_by_the_address_that_nginx_adds(behind):
    """What a client says of itself stands before it, and must not give it more attempts."""

    def guess(number: int, address: str) -> int:
        return behind.curl(
            "/api/v1/plans",
            *("--interface", address, "--header", f"X-Forwarded-For: 192.0.2.{number}"),
            *("--header", f"Authorization: Bearer {'x' * 40}"),
        ).status

    assert {guess(number, "127.0.0.2") for number in range(14)} == {401, 429}
    assert guess(20, "127.0.0.3") == 401, "another client has its own attempts"
    assert behind.by_token("/api/v1/plans").status == 200


def test_the_log_of_nginx_has_no_token(behind):
    behind.curl("/?token=a-token-for-one-use")
    log = behind.proxy.log.read_text()
    assert '"GET /"' in log
    assert "token" not in log


@pytest.mark.long
def test_a_browser_signs_in_over_tls_and_follows_events(behind, tmp_path):
    with chromium(tmp_path, resolve=NAME) as browser:
        browser.open(f"{behind.proxy.url}/")
        browser.sign_in(behind.server.token)
        assert "ddlplan" in browser.driver.title
        state = browser.driver.execute_async_script(
            "const done = arguments[0], events = new EventSource('/api/v1/events');"
            "events.onopen = () => { events.close(); done('open'); };"
            "events.onerror = () => done('error');"
        )
        assert state == "open"
        assert browser.requested_hosts() == {f"{NAME}:{behind.proxy.port}"}
        assert browser.errors() == []

        # The server is killed and started again: the page goes on, and is still signed in.
        browser.wait_until(lambda: "Live" in browser.one("#live-state").text, "its first events")
        behind.server.stop(signal.SIGKILL)
        browser.wait_until(lambda: "Live" not in browser.one("#live-state").text, "a word of it")
        behind.server.start()
        browser.wait_until(lambda: "Live" in browser.one("#live-state").text, "the next server")
        assert browser.all("#best tbody tr")


@pytest.fixture
def tunnel(ddlplan, tmp_path) -> Iterator[tuple[Serving, str]]:
    """A server without token file, and its address with the port of this end of ssh -L."""
    fill(ddlplan.folder / "planner.db")
    port = free_port()
    surroundings = ddlplan.surroundings()
    with (
        ssh_forward(tmp_path / "ssh", server_port=port) as local_port,
        serving(
            ddlplan.folder, "--port", port, has_token_file=False, environment=surroundings
        ) as server,
    ):
        assert server.address.startswith(f"http://127.0.0.1:{port}/?token=")
        yield server, server.address.replace(f":{port}/", f":{local_port}/")
        assert server.stop() == 0


def test_the_printed_address_works_at_the_other_end_of_ssh(tunnel, tmp_path):
    _, address = tunnel
    origin = address.partition("/?")[0]
    for name in ("127.0.0.1", "localhost"):
        assert curl(f"{origin.replace('127.0.0.1', name)}/").status == 401
    cookies = ["--cookie", str(tmp_path / "cookies"), "--cookie-jar", str(tmp_path / "cookies")]
    as_browser = {"Mode": "navigate", "Dest": "document", "Site": "none"}
    sent = [f"Sec-Fetch-{name}: {value}" for name, value in as_browser.items()]
    headers = [word for header in sent for word in ("--header", header)]
    entered = curl(address, *cookies, *headers)
    assert entered.status == 303
    assert "; secure" not in entered.headers
    assert curl(f"{origin}/", *cookies).status == 200
    assert curl(f"{origin}/api/v1/plans", *cookies).data
    again = curl(address, *headers)
    assert again.status == 401, "it was for one use"
    *_, name, value = (tmp_path / "cookies").read_text().split()
    follow = Request(f"{origin}/api/v1/events", headers={"Cookie": f"{name}={value}"})
    with urlopen(follow, timeout=GUARD_S) as events:  # curl would wait for their end
        assert "event-stream" in events.headers["content-type"]
