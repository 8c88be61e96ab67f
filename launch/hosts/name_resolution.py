"""Addresses of host names, and whether a name means this machine."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from ipaddress import ip_address
from queue import Empty, SimpleQueue
from threading import Thread

from launch.hosts.host_line import Host

LIMIT_S, _LIMIT_OF_ONE_S = 5.0, 2.0

Resolve = Callable[[str], set[str]]
"""Returns the addresses of a name; none where it is not known."""

_THREADS = 32
_LOCAL_NAMES = frozenset({"localhost", "localhost.localdomain", "ip6-localhost"})


def resolve(name: str) -> set[str]:
    """Look up the addresses of a name; none where the system does not know any."""
    try:
        return {str(found[4][0]) for found in socket.getaddrinfo(name, None)}
    except (OSError, UnicodeError):
        return set()


def resolve_all(
    names: Iterable[str],
    *,
    resolve: Resolve = resolve,
    limit_s: float = LIMIT_S,
) -> dict[str, set[str]]:
    """Look up the addresses of each name; none where the system does not know any in time.

    Args:
        names: Host names and addresses.
        resolve: Looks up one name. It may hang: the system's resolver cannot be interrupted.
        limit_s: Time limit for all of them together.
    """
    found: dict[str, set[str]] = {name: set() for name in names}
    queued: SimpleQueue[str] = SimpleQueue()
    results: SimpleQueue[tuple[str, set[str]]] = SimpleQueue()
    for name in found:
        queued.put(name)

    def work() -> None:
        while True:
            try:
                name = queued.get_nowait()
            except Empty:
                return
            results.put((name, resolve(name)))

    for _ in range(min(_THREADS, len(found))):
        Thread(target=work, daemon=True, name="resolve").start()
    deadline_s = time.monotonic() + limit_s
    for _ in range(len(found)):
        try:
            name, addresses = results.get(timeout=max(deadline_s - time.monotonic(), 0))
        except Empty:
            break
        found[name] = addresses
    return found


def resolve_in_time(name: str) -> set[str]:
    """Look up the addresses of one name; none where the system does not know any in time."""
    return resolve_all([name], limit_s=_LIMIT_OF_ONE_S)[name]


def is_this_machine(host: Host, *, resolve: Resolve = resolve_in_time) -> bool:
    """Whether a host of a host file is the machine that this runs on.

    By name where that suffices, else by address: one of this machine's interfaces has it.

    Args:
        host: Host to check.
        resolve: Looks up a name, in bounded time.
    """
    own_name = socket.gethostname().lower()
    if host.key in _LOCAL_NAMES or host.key in (own_name, own_name.partition(".")[0]):
        return True
    with suppress(ValueError):  # a name that is no address
        return _is_own(host.name)
    return any(map(_is_own, resolve(host.name)))


def _is_own(address: str) -> bool:
    bare = ip_address(address.partition("%")[0])
    # Here: what it imports would slow every other command.
    from probes.network.interfaces import read_addresses

    own = {ip_address(one) for addresses in read_addresses().values() for one in addresses}
    return bare.is_loopback or bare in own
