"""Entrance: how a browser signs in.

The address with a token for one use gives a cookie at once where a person follows it. A program
that only looks where a link leads, as chats do for a preview, must not use the token up: what does
not say by ``Sec-Fetch`` headers that a person came gets a page with a button. Such headers are only
sent to this machine and over TLS, so that the button is what others see. A page that is asked for
without a cookie answers with a form for a token, which leads on to that page.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import parse_qs, quote

from planner.service.guard.attempts import WrongTokens
from planner.service.guard.credentials import SESSION_S, Credentials
from planner.service.requests.answers import HTML, Answer, Receive, Scope, Send
from planner.service.requests.documents import CHALLENGE, RequestError

_NEXT = re.compile(r"/(?!/)[A-Za-z0-9._~/-]*(?:\?[A-Za-z0-9._~/%&=+,:;!*()@$-]*)?")
_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:28rem;margin:4rem auto;padding:0 1rem;"
    "color-scheme:light dark}label{display:block}"
    "input{font:inherit;width:100%;box-sizing:border-box;padding:.4rem;margin:.3rem 0 1rem}"
    "button{font:inherit;padding:.4rem 1rem}"
)
_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest())
_HEADERS = {
    b"content-security-policy": b"default-src 'none'; style-src 'sha256-%b'; base-uri 'none'; "
    b"form-action 'self'; frame-ancestors 'none'" % _STYLE_HASH,
    # Under no-referrer a browser would not name the origin of the form.
    b"referrer-policy": b"strict-origin",
}


@dataclass(frozen=True, slots=True)
class Entrance:
    """Signs browsers in."""

    credentials: Credentials
    wrong_tokens: WrongTokens

    cookie: str
    """Name of the cookie."""

    on_used: Callable[[], None]
    """Called when the token for one use was used."""

    def has_cookie(self, headers: Mapping[bytes, bytes]) -> bool:
        """Whether a request has a good cookie."""
        for part in headers.get(b"cookie", b"").decode("latin-1").split(";"):
            name, _, value = part.strip().partition("=")
            if name == self.cookie and self.credentials.is_cookie(value):
                return True
        return False

    def exchange(self, scope: Scope, *, is_signed_in: bool) -> Answer:
        """Answer a request for the address with a token.

        Raises:
            RequestError: The token is wrong, again.
        """
        if is_signed_in:  # a reload, or the address once more
            return _redirect("/")
        token = _first(scope["query_string"], "token")
        if not self.credentials.is_once(token):
            self.wrong_tokens.count(scope["from"])
            return _form("/", "That address was used before, or is another server's.")
        headers = dict(scope["headers"])
        if scope["method"] != "GET" or not _is_a_person(headers):
            return _button(token)
        self._use_once()
        cookie = self._make_cookie(scope)
        if headers.get(b"sec-fetch-site") in (b"none", b"same-origin"):
            return _redirect("/", cookie)
        # Behind a redirection, a link of another site would not carry the cookie yet.
        return _refresh("/", cookie)

    def turn_away(self, scope: Scope) -> Answer:
        """Answer a request without token or cookie.

        Raises:
            RequestError: A program made it.
        """
        path = scope["path"]
        if scope["method"] not in ("GET", "HEAD") or path.startswith(("/api/", "/static/")):
            raise RequestError(401, "a token is needed", headers=CHALLENGE)
        query = scope["query_string"].decode("latin-1")
        here = quote(path, safe="/~") + (f"?{query}" if query else "")
        if dict(scope["headers"]).get(b"sec-fetch-site") == b"cross-site":
            # The cookie is not sent with links of other sites, but from this page it is.
            return _refresh(_checked(here), status=401)
        return _form(here)

    async def sign_in(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the form.

        Raises:
            RequestError: The token is wrong, again.
        """
        body = (await receive())["body"]
        await self._sign_in(scope, body).send(send)

    def _sign_in(self, scope: Scope, body: bytes) -> Answer:
        token, there = _first(body, "token").strip(), _first(body, "next")
        is_once = self.credentials.is_once(token)
        if not is_once and not self.credentials.is_token(token):
            self.wrong_tokens.count(scope["from"])
            return _form(there, "That token is wrong.")
        if is_once:
            self._use_once()
        return _redirect(_checked(there), self._make_cookie(scope))

    def _use_once(self) -> None:
        self.credentials.use_once()
        self.on_used()

    def _make_cookie(self, scope: Scope) -> dict[bytes, bytes]:
        secure = "; Secure" if scope["origin"].startswith("https:") else ""
        value = self.credentials.make_cookie()
        flags = f"HttpOnly; SameSite=Strict; Path=/; Max-Age={SESSION_S}{secure}"
        return {b"set-cookie": f"{self.cookie}={value}; {flags}".encode()}


def _is_a_person(headers: Mapping[bytes, bytes]) -> bool:
    purpose = headers.get(b"sec-purpose", headers.get(b"purpose", b""))
    return (
        headers.get(b"sec-fetch-mode") == b"navigate"
        and headers.get(b"sec-fetch-dest") == b"document"
        and not purpose
    )


def _checked(there: str) -> str:
    """Give an address of this server; the first page in place of anything else."""
    return there if _NEXT.fullmatch(there) else "/"


def _first(query: bytes, name: str) -> str:
    try:
        found = parse_qs(query.decode("latin-1"), max_num_fields=16, errors="replace")
    except ValueError:  # there are more
        return ""
    return found.get(name, [""])[0]


def _redirect(there: str, headers: Mapping[bytes, bytes] | None = None) -> Answer:
    to = {b"location": there.encode(), **(headers or {})}
    return Answer(status=303, body=b"", content_type=HTML, headers=to)


def _refresh(
    there: str, headers: Mapping[bytes, bytes] | None = None, *, status: int = 200
) -> Answer:
    to = html.escape(there)
    return _page(
        f'<meta http-equiv="refresh" content="0; url={to}">',
        f'<p><a href="{to}">Open ddlplan</a></p>',
        status=status,
        headers=headers,
    )


def _button(token: str) -> Answer:
    return _page(
        "",
        '<form method="post" action="/sign-in">'
        f'<input type="hidden" name="token" value="{html.escape(token)}">'
        "<button>Open ddlplan</button></form>",
        status=200,
    )


def _form(there: str, message: str = "") -> Answer:
    there = _checked(there)
    told = f'<p role="alert">{html.escape(message)}</p>' if message else ""
    return _page(
        "",
        f"<h1>ddlplan</h1>{told}<p>Open the address that <code>ddlplan serve</code> printed, or "
        'type the token of its token file.</p><form method="post" action="/sign-in">'
        f'<input type="hidden" name="next" value="{html.escape(there)}">'
        '<label>Token<input name="token" type="password" autocomplete="current-password" required>'
        f'</label><button>Sign in</button></form><p><a href="{html.escape(there)}">'
        "I am signed in here already</a></p>",
        status=401,
        headers=CHALLENGE,
    )


def _page(
    head: str, main: str, *, status: int, headers: Mapping[bytes, bytes] | None = None
) -> Answer:
    body = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>ddlplan</title>{head}<style>{_STYLE}</style></head>"
        f"<body><main>{main}</main></body></html>"
    )
    return Answer(
        status=status,
        body=body.encode(),
        content_type=HTML,
        headers={**_HEADERS, **(headers or {})},
    )
