"""Every route refuses what it should: tests walk the routing table, so that none is forgotten."""

from __future__ import annotations

from pathlib import Path

import pytest
from serving import JSON, Reply, Serving
from unserved import make_unserved

from planner import service
from planner.service.guard.addresses import Addresses
from planner.service.requests.guarded_route import FORM, GuardedRoute

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND")


@pytest.fixture(scope="module")
def routes(tmp_path_factory) -> tuple[GuardedRoute, ...]:
    """The routing table, of an application that is never started."""
    folder, addresses = tmp_path_factory.mktemp("table"), Addresses.of("127.0.0.1")
    made = make_unserved(folder, addresses, allow_actions=True)
    assert len(made.routes) > 30
    return made.routes


def path_of(route: GuardedRoute) -> str:
    return route.path.replace("{id:int}", "1").replace("{name}", "a.css")


def ask(server: Serving, route: GuardedRoute, **options) -> Reply:
    """Ask as the route wants to be asked, but for what is given."""
    method = options.pop("method", route.allowed[0])
    if method == "POST":
        options = {
            "body": b"{}",
            "content_type": route.content_types[0],
            "origin": f"http://127.0.0.1:{server.port}",
            **options,
        }
    return server.ask(path_of(route), method=method, **options)


def odd(server: Serving, routes, expected, **options) -> list[str]:
    """Give the routes that answer otherwise than expected, however they are asked."""
    found = []
    for route in routes:
        reply = ask(server, route, **options)
        if reply.status not in expected or b"simplebig" in reply.body:
            found.append(f"{route.allowed[0]} {route.path}: {reply.status} {reply.body[:200]!r}")
    return found


def test_without_a_token_nothing_is_shown_or_done(server, routes):
    assert odd(server, routes, {401}, token=None) == []


@pytest.mark.parametrize(
    "authorization",
    ["Bearer wrong", "Bearer ", "Bearer", "Basic dXNlcjpwYXNz", "bearer\t{}", "{}", "Bearer {} x"],
)
def test_a_wrong_token_is_refused(server, routes, authorization):
    text = authorization.replace("{}", server.token)
    assert odd(server, routes, {401, 429}, authorization=text) == []


def test_a_wrong_token_is_refused_beside_a_good_cookie(server, routes, cookie):
    assert odd(server, routes, {401, 429}, authorization="Bearer wrong", cookie=cookie) == []


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1.evil.example",
        "10.evil.example",
        "localhost.evil.example:80",
        "127.0.0.2",
        "0.0.0.0",
        "[::2]",
        "[::1]evil.example",
        "::1",
        "127.0.0.1:",
        "127.0.0.1:80:80",
        "127.0.0.1@evil.example",
        "evil.example#127.0.0.1",
        "127.1",
        "2130706433",
        "",
        None,
    ],
)
def test_another_host_name_is_refused(server, routes, host):
    one_of_each = routes if host == "evil.example" else routes[::8]
    refused = {421} if host is not None else {400}  # HTTP/1.1 needs the header
    assert odd(server, one_of_each, refused, host=host) == []


@pytest.mark.parametrize("host", ["localhost:{}", "127.0.0.1:{}", "[::1]:{}", "LOCALHOST", "[::1]"])
def test_names_of_this_machine_are_known_with_any_port(server, host):
    assert server.ask("/api/v1/plans", host=host.format(server.port)).status == 200


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "null",
        "https://127.0.0.1:{}",
        "http://127.0.0.1",
        "http://127.0.0.1:1",
        "http://localhost:{}",
        "http://127.0.0.1:{}/",
        "http://127.0.0.1:{} http://evil.example",
        "",
    ],
)
def test_a_page_of_another_origin_is_refused(server, routes, origin):
    one_of_each = routes if origin == "http://evil.example" else routes[::8]
    assert odd(server, one_of_each, {403}, origin=origin.format(server.port)) == []


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_what_another_site_makes_a_browser_fetch_is_refused(server, routes, site):
    for mode in ("no-cors", "cors", "websocket", "same-origin"):
        assert odd(server, routes, {403}, sec_fetch_site=site, sec_fetch_mode=mode) == []


def test_another_method_is_refused_and_the_right_ones_are_named(server, routes):
    by_path: dict[str, set[str]] = {}
    for route in routes:
        by_path.setdefault(route.path, set()).update(route.allowed)
    for route in routes:
        for method in set(METHODS) - by_path[route.path]:
            reply = ask(server, route, method=method)
            assert reply.status == 405, (method, route.path)
            assert set(reply.headers["allow"].split(", ")) == by_path[route.path]


@pytest.mark.parametrize(
    "content_type",
    ["text/plain", "text/json", "multipart/form-data", "application/jsonx", "", None, FORM],
)
def test_another_content_type_is_refused(server, routes, content_type):
    """A form of another page cannot be an action either."""
    posts = [route for route in routes if route.allowed[0] == "POST"]
    others = [route for route in posts if route.is_action or content_type != FORM]
    assert odd(server, others, {415}, content_type=content_type) == []


def test_what_is_read_has_no_body(server, routes):
    reading = [route for route in routes if route.allowed[0] == "GET"]
    assert odd(server, reading, {415}, method="GET", body=b"{}") == []


def test_without_allow_actions_nothing_is_done(showing, routes):
    actions = [route for route in routes if route.is_action]
    assert len(actions) >= 8
    assert odd(showing, actions, {403}) == []
    assert "--allow-actions" in ask(showing, actions[0]).message
    assert "every training will be refused" not in showing.err  # it starts none


def test_with_a_cookie_only_pages_of_the_server_itself_can_act(server, routes, cookie):
    actions = [route for route in routes if route.is_action]
    assert odd(server, actions, {403}, token=None, cookie=cookie, origin=None) == []


def test_an_action_is_a_post_and_only_a_post(routes):
    for route in routes:
        changes = route.allowed == ("POST",) and route.path != "/sign-in"
        assert route.is_action == changes, route.path
        assert route.is_open == (route.path == "/sign-in"), route.path
        assert route.content_types == (JSON,) or route.path == "/sign-in", route.path


def test_every_answer_has_the_headers_that_browsers_obey(server, routes):
    for route in routes:
        for reply in (ask(server, route, token=None), ask(server, route, host="evil.example")):
            assert reply.headers["x-content-type-options"] == "nosniff"
            assert reply.headers["cache-control"] == "no-store"
            assert reply.headers["x-frame-options"] == "DENY"
            policy = reply.headers["content-security-policy"]
            assert policy.startswith(("default-src 'self'", "default-src 'none'"))
            assert "frame-ancestors 'none'" in policy
            assert "access-control-allow-origin" not in reply.headers
            assert "server" not in reply.headers


@pytest.mark.parametrize("path", ["/nothing", "/api/v1/nothing", "/api/v2/plans", "/plans/", "//"])
def test_an_unknown_address_is_not_found_and_strangers_do_not_learn_that(server, path):
    assert server.ask(path).status == 404
    assert server.ask(path, token=None).status == 401


@pytest.mark.parametrize("kind", ["websocket", "h2c"])
def test_there_are_no_websockets(server, kind):
    upgrade = {"connection": "Upgrade", "upgrade": kind, "sec_websocket_version": "13"}
    reply = server.ask("/api/v1/plans", **upgrade, sec_websocket_key="dGhlIHNhbXBsZSBub25jZQ==")
    assert reply.status == 200


def test_no_decision_is_made_by_an_address_that_was_put_together_from_the_host_header():
    # As Starlette's request.url is.
    root = Path(service.__file__).parent
    found = [
        (line, str(file.relative_to(root)))
        for file in root.rglob("*.py")
        for line in file.read_text().splitlines()
        if "import" in line and "starlette" in line
    ]
    assert {line.strip() for line, _ in found} <= {
        "from starlette.routing import Match, Route",
        "from starlette.types import ASGIApp, Scope",
    }, found
