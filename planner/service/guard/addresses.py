"""Addresses: the names under which a server was started, which its requests must name.

A page elsewhere can give its own name our address and then speak to us as itself (DNS rebinding).
Its requests name its own host, so that they are refused. Names are compared whole: a pattern such
as ``10.*`` would let ``10.evil.example`` in.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

import psutil

from planner.errors import UsageError

_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+))(?::([0-9]{1,5}))?")
_WILDCARDS = ("0.0.0.0", "::")  # noqa: S104 - compared with, not bound to
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Addresses:
    """Names of a server, and the origins of its own pages."""

    names: frozenset[str]
    """Host names and IP addresses, in small letters and without ports."""

    public_origins: frozenset[str]
    """Scheme, name and port of the addresses that a proxy in front has."""

    @staticmethod
    def of(host: str, public_urls: Sequence[str] = ()) -> Addresses:
        """Give the addresses of a server that listens at ``host``, with proxies in front of it.

        Raises:
            UsageError: A public address is none.
        """
        origins = frozenset(_read_origin(url) for url in public_urls)
        return Addresses(
            names=frozenset([*map(_canonical, _own_names(host)), *map(_name_of, origins)]),
            public_origins=origins,
        )

    def knows(self, host: str) -> bool:
        """Whether a ``Host`` header names this server; any port will do, as ssh -L changes it."""
        try:
            return _split(host)[0] in self.names
        except ValueError:
            return False

    def find_origins(self, host: str) -> list[str]:
        """Give the origins of pages of this server for a browser that names it so, by TLS first."""
        name, port = _split(host)
        public = [one for one in self.public_origins if _name_of(one) == name]
        return sorted(public, reverse=True) or [_origin("http", name, port)]


def is_loopback(host: str) -> bool:
    """Whether only programs of this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _own_names(host: str) -> Iterable[str]:
    if host in _WILDCARDS:
        yield from _LOOPBACK
        yield from (socket.gethostname(), socket.getfqdn())
        for found in psutil.net_if_addrs().values():
            yield from (
                one.address.partition("%")[0]
                for one in found
                if one.family in (socket.AF_INET, socket.AF_INET6)
            )
    elif host in _LOOPBACK:
        yield from _LOOPBACK
    else:
        yield host


def _split(host: str) -> tuple[str, int | None]:
    """Read the value of a ``Host`` header.

    Raises:
        ValueError: It is none.
    """
    match = _HOST.fullmatch(host)
    if match is None:
        raise ValueError(host)
    address, name, port = match.groups()
    number = None if port is None else int(port)
    if address is not None:
        return str(ipaddress.IPv6Address(address)), number
    return name.lower(), number


def _name_of(origin: str) -> str:
    return _split(origin.partition("://")[2])[0]


def _canonical(name: str) -> str:
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        return name.lower()


def _read_origin(url: str) -> str:
    try:
        parts = urlsplit(url)
        name, port = _split(parts.netloc)
    except ValueError:
        parts, name, port = urlsplit(""), "", None
    if parts.scheme not in ("http", "https") or parts.path not in ("", "/") or parts.query:
        raise UsageError(f"--public-url {url!r}: write scheme and name, as https://lab.example")
    return _origin(parts.scheme, name, port)


def _origin(scheme: str, name: str, port: int | None) -> str:
    usual = {"http": 80, "https": 443}[scheme]
    shown = f"[{name}]" if ":" in name else name
    return f"{scheme}://{shown}" + ("" if port in (None, usual) else f":{port}")
