"""Credentials of a server: the token of a file, tokens for one use, and signed cookies.

A browser opens an address with a token for one use and gets a cookie. Scripts send the token of
``--token-file``, which people may type too. Cookies are signed rather than remembered: with a token
file they are good after a restart of the server, until the token is another one.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from planner.errors import RefusedError, UsageError, reason_of

_TOKEN = re.compile(r"[\x21-\x7e]{32,512}")
SESSION_S = 30 * 86400
"""For so long a cookie is good."""

_COOKIE = re.compile(r"([0-9]{1,12})\.([A-Za-z0-9_-]{22})\.([0-9a-f]{64})")


class Credentials:
    """Judges tokens and cookies, in a time that does not depend on where they differ."""

    def __init__(self, token: str | None = None, *, clock: Callable[[], float] = time.time) -> None:
        self._token = token
        self._clock = clock
        self._once: str | None = None
        key = secrets.token_bytes(32) if token is None else token.encode()
        self._key = hmac.digest(key, b"ddlplan session cookie 1", "sha256")

    def renew_once(self) -> str:
        """Make a token for one use; an earlier one that was not used is void."""
        self._once = secrets.token_urlsafe(32)
        return self._once

    def is_token(self, token: str) -> bool:
        """Whether a text is the token of the file."""
        return _is_same(token, self._token)

    def is_once(self, token: str) -> bool:
        """Whether a text is the token for one use, which stays unused."""
        return _is_same(token, self._once)

    def use_once(self) -> None:
        """Use up the token for one use."""
        self._once = None

    def make_cookie(self) -> str:
        signed = f"{int(self._clock())}.{secrets.token_urlsafe(16)}"
        return f"{signed}.{self._sign(signed)}"

    def is_cookie(self, value: str) -> bool:
        """Whether this server, or one with the same token file, made a cookie's value."""
        match = _COOKIE.fullmatch(value)
        signature = match[3] if match else ""
        signed = value[: -len(signature) - 1] if match else ""
        good = hmac.compare_digest(signature, self._sign(signed))
        return good and match is not None and 0 <= self._clock() - int(match[1]) < SESSION_S

    def _sign(self, text: str) -> str:
        return hmac.new(self._key, text.encode(), hashlib.sha256).hexdigest()


def read_token_file(path: Path) -> str:
    """Read a token; make one where there is no file.

    Raises:
        RefusedError: Others than its owner may read the file.
        UsageError: It cannot be read or made, or holds no token.
    """
    try:
        with suppress(FileExistsError):
            return _make_token_file(path)
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise UsageError(f"--token-file {path}: {reason_of(error)}: name another file") from error
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        os.close(descriptor)
        raise UsageError(f"--token-file {path}: it is no regular file: name another file")
    with os.fdopen(descriptor, "rb") as file:
        if found.st_mode & 0o077 or found.st_uid not in (os.geteuid(), 0):
            raise RefusedError(
                f"--token-file {path}: mode {found.st_mode & 0o777:04o} of user {found.st_uid}: "
                f"only its owner may read it: chmod 600 {path}"
            )
        content = file.read(1024)
    token = content.decode("ascii", "replace").strip()
    if not _TOKEN.fullmatch(token):
        raise UsageError(
            f"--token-file {path}: expected one line of 32 to 512 printable characters without "
            "spaces: remove the file and ddlplan makes one"
        )
    return token


def _make_token_file(path: Path) -> str:
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    token = secrets.token_urlsafe(32)
    try:
        with os.fdopen(descriptor, "w") as file:
            os.fchmod(descriptor, 0o600)
            file.write(f"{token}\n")
    except OSError:
        path.unlink(missing_ok=True)
        raise
    return token


def _is_same(text: str, secret: str | None) -> bool:
    """Compare hashes, whose length tells nothing; a secret that is not there equals nothing."""
    one, other = (
        hashlib.sha256(t.encode("utf-8", "replace")).digest() for t in (text, secret or "")
    )
    return hmac.compare_digest(one, other) and secret is not None
