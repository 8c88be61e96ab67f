"""Guard: what every request has to pass before any other code sees it.

It refuses by default: the host must be one of this server's names, the origin its own, the token
right, the route known, method and content type listed there, and sizes within bounds. It reads
``scope["path"]``, never an address that was put together from the ``Host`` header.
"""

from __future__ import annotations

import asyncio
import html
import re
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from planner.quantities import printable
from planner.service.guard.addresses import Addresses, is_loopback
from planner.service.guard.attempts import WrongTokens
from planner.service.guard.credentials import Credentials
from planner.service.guard.entrance import Entrance
from planner.service.pages.assets import asset_address
from planner.service.requests.answers import HTML, Answer, Message, Receive, Scope, Send
from planner.service.requests.documents import CHALLENGE, RequestError, error_document
from planner.service.requests.guarded_route import GuardedRoute, find_routes
from planner.service.requests.settings import Bounds
from planner.service.requests.terminal import tell_terminal

_ONCE_ONLY = (
    b"host",
    b"origin",
    b"content-length",
    b"content-type",
    b"transfer-encoding",
    b"authorization",
    b"cookie",
    b"last-event-id",
    b"idempotency-key",
    b"sec-fetch-site",
    b"sec-fetch-mode",
    b"sec-fetch-dest",
)
_PATH = re.compile(r"/[A-Za-z0-9._~/-]*")
_LENGTH = re.compile(r"[0-9]{1,18}")
_BEARER = re.compile(r"[Bb]earer +([\x21-\x7e]{1,512})")

_SECURITY_HEADERS = {
    b"content-security-policy": b"default-src 'self'; base-uri 'none'; form-action 'self'; "
    b"frame-ancestors 'none'; object-src 'none'",
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    b"cache-control": b"no-store",
}
"""Of every answer, where it does not say otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """An ASGI application in front of those of all routes."""

    routes: Sequence[GuardedRoute]
    addresses: Addresses
    credentials: Credentials
    bounds: Bounds
    allow_actions: bool
    entrance: Entrance
    wrong_tokens: WrongTokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # websockets: there are none
            await send({"type": "websocket.close", "code": 1008})
            return
        is_started = False

        async def send_safely(message: Message) -> None:
            nonlocal is_started
            if message["type"] == "http.response.start":
                is_started = True
                given = {name.lower() for name, _ in message.get("headers", ())}
                more = [(k, v) for k, v in _SECURITY_HEADERS.items() if k not in given]
                message = {**message, "headers": [*message.get("headers", ()), *more]}
            await send(message)

        try:
            await self._answer(scope, receive, send_safely)
        except RequestError as refusal:
            if is_started:
                raise
            await _refuse(scope, refusal, send_safely)
        except Exception:  # what no one expected is a bug of ours
            tell_terminal(_describe_bug())
            if is_started:
                raise
            message = "a bug in ddlplan: the terminal of ddlplan serve says more"
            await _refuse(scope, RequestError(500, message, code=8), send_safely)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = self._read_headers(scope)
        self._check_address(scope, headers)
        shown_by = self._check_token(scope, headers)
        if scope["path"] == "/" and b"token=" in scope["query_string"]:
            await self.entrance.exchange(scope, is_signed_in=shown_by is not None).send(send)
            return
        routes = find_routes(self.routes, scope)
        if shown_by is None and not any(route.is_open for route in routes):
            await self.entrance.turn_away(scope).send(send)
            return
        route = _choose(routes, scope["method"])
        scope["route"] = route
        if route.is_action and not self.allow_actions:
            raise RequestError(
                403, "this server only shows: start it with --allow-actions", code=7, kind="refused"
            )
        is_reading = scope["method"] in ("GET", "HEAD")
        if not is_reading and shown_by != "bearer" and b"origin" not in headers:
            raise RequestError(
                403, "only a page of this server may ask for this, which names its origin"
            )
        scope.update(route.matches(scope)[1])
        await route.app(scope, await self._read_body(route, headers, receive), send)

    def _read_headers(self, scope: Scope) -> dict[bytes, bytes]:
        bounds = self.bounds
        if scope["http_version"] not in ("1.0", "1.1"):
            raise RequestError(505, "only HTTP/1.0 and HTTP/1.1 are spoken here", headers=_CLOSE)
        if len(scope["raw_path"]) + len(scope["query_string"]) > bounds.url_bytes:
            raise RequestError(414, f"the address has more than {bounds.url_bytes} bytes")
        pairs: Sequence[tuple[bytes, bytes]] = scope["headers"]
        if (
            len(pairs) > bounds.headers
            or sum(len(name) + len(value) for name, value in pairs) > bounds.header_bytes
        ):
            raise RequestError(
                431, f"more than {bounds.headers} headers or {bounds.header_bytes} bytes of them"
            )
        names = [name for name, _ in pairs]
        for name in _ONCE_ONLY:
            if names.count(name) > 1:
                raise RequestError(400, f"the header {name.decode()} is there more than once")
        return dict(pairs)

    def _check_address(self, scope: Scope, headers: dict[bytes, bytes]) -> None:
        host = headers.get(b"host", b"").decode("latin-1")
        if not self.addresses.knows(host):
            raise RequestError(
                421,
                "this server was not started for that host name: --public-url names further ones",
            )
        own = self.addresses.find_origins(host)
        origin = headers.get(b"origin", own[0].encode()).decode("latin-1").lower()
        if origin not in own:
            raise RequestError(403, "a page of another server asked for this")
        # A link from elsewhere opens a page; nothing else may come from there.
        site, mode = headers.get(b"sec-fetch-site"), headers.get(b"sec-fetch-mode")
        if site in (b"cross-site", b"same-site") and (
            mode != b"navigate" or scope["method"] not in ("GET", "HEAD")
        ):
            raise RequestError(403, "a page of another server asked for this")
        scope["origin"] = origin
        scope["from"] = self._find_client(scope, headers)
        if not _PATH.fullmatch(scope["path"]) or not _is_text(scope["query_string"]):
            raise RequestError(404, "there is nothing at this address")

    def _check_token(self, scope: Scope, headers: dict[bytes, bytes]) -> str | None:
        """Give how the request shows that it may: ``None`` where it does not try to.

        Raises:
            RequestError: It tries, and has a wrong token.
        """
        if (given := headers.get(b"authorization")) is not None:
            match = _BEARER.fullmatch(given.decode("latin-1"))
            if match is None or not self.credentials.is_token(match[1]):
                self.wrong_tokens.count(scope["from"])
                raise RequestError(401, "the token is wrong", headers=CHALLENGE)
            return "bearer"
        return "cookie" if self.entrance.has_cookie(headers) else None

    def _find_client(self, scope: Scope, headers: dict[bytes, bytes]) -> str:
        # On a socket of IPv6, clients of IPv4 have such addresses.
        address: str = (scope.get("client") or ("",))[0].removeprefix("::ffff:")
        if self.addresses.public_origins and is_loopback(address):
            # A proxy of this machine adds who asked it; what stands before that anybody may write.
            said = headers.get(b"x-forwarded-for", b"").decode("latin-1")
            return said.rpartition(",")[2].strip() or address
        return address

    async def _read_body(
        self, route: GuardedRoute, headers: dict[bytes, bytes], receive: Receive
    ) -> Receive:
        """Read the whole body, and give what hands it over."""
        length = headers.get(b"content-length", b"0").decode("latin-1")
        coding = headers.get(b"transfer-encoding")
        if not _LENGTH.fullmatch(length) or (coding is not None and b"content-length" in headers):
            raise RequestError(400, "the length of the body is not clear", headers=_CLOSE)
        has_body = int(length) > 0 or coding is not None
        if not has_body and route.allowed[0] != "POST":
            return receive
        kind = headers.get(b"content-type", b"").decode("latin-1").partition(";")[0]
        if route.allowed[0] != "POST" or kind.strip().lower() not in route.content_types:
            expected = " or ".join(route.content_types) if route.allowed[0] == "POST" else "no body"
            raise RequestError(415, f"content type: expected {expected}")
        most = route.body_bytes or self.bounds.body_bytes
        too_large = RequestError(413, f"the body has more than {most} bytes")
        if int(length) > most:
            raise too_large
        body = bytearray()
        try:
            async with asyncio.timeout(self.bounds.body_s):
                while True:
                    message = await receive()
                    if message["type"] != "http.request":
                        raise RequestError(400, "the body ended too early")
                    body += message.get("body", b"")
                    if len(body) > most:
                        raise too_large
                    if not message.get("more_body"):
                        break
        except TimeoutError:
            raise RequestError(408, "the body took too long", headers=_CLOSE) from None
        whole: Message | None = {"type": "http.request", "body": bytes(body), "more_body": False}

        async def give() -> Message:
            nonlocal whole
            if whole is None:
                return await receive()
            message, whole = whole, None
            return message

        return give


_CLOSE = {b"connection": b"close"}


def _choose(routes: Sequence[GuardedRoute], method: str) -> GuardedRoute:
    if not routes:
        raise RequestError(404, "there is nothing at this address")
    for route in routes:
        if method in route.allowed:
            return route
    allowed = ", ".join(dict.fromkeys(m for route in routes for m in route.allowed))
    raise RequestError(405, f"allowed here: {allowed}", headers={b"allow": allowed.encode()})


def _is_text(query: bytes) -> bool:
    """Whether a query is UTF-8 without control characters."""
    try:
        text = unquote_to_bytes(query.replace(b"+", b" ")).decode()
    except UnicodeDecodeError:
        return False
    return not any(character < " " or character == "\x7f" for character in text)


def _describe_bug() -> str:
    """Give the traceback, indented: a request may have put lines of its own into its message."""
    lines = traceback.format_exc().splitlines()
    return "".join(["bug:\n", *(f"    {printable(line)}\n" for line in lines)])


_STYLES = "".join(
    f'<link rel="stylesheet" href="{asset_address(name)}">' for name in ("figures.css", "site.css")
)


async def _refuse(scope: Scope, refusal: RequestError, send: Send) -> None:
    if scope["path"].startswith("/api/"):
        route = scope.get("route")
        body = error_document(getattr(route, "command", "serve"), refusal)
        answer = Answer(status=refusal.status, body=body, headers=refusal.headers)
    else:
        text = html.escape(refusal.message)
        body = (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>{refusal.status} · ddlplan</title>{_STYLES}</head>"
            f'<body><main class="page"><h1>{refusal.status}</h1>'
            f'<p class="lead">{text[:1].upper()}{text[1:]}.</p>'
            '<p><a href="/">To the overview</a></p></main></body></html>'
        ).encode()
        answer = Answer(
            status=refusal.status, body=body, content_type=HTML, headers=refusal.headers
        )
    await answer.send(send)
