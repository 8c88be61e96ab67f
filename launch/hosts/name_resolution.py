"""Addresses of host names, and whether a name means this machine."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable
from ipaddress import ip_address
from queue import Empty, SimpleQueue
from threading import Thread

from launch.hosts.host_line import Host

LIMIT_S = 5.0
_RESOLVE_TIMEOUT_S = 2.0

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


def is_this_machine(
    host: Host, *, resolve: Resolve = resolve, timeout_s: float = _RESOLVE_TIMEOUT_S
) -> bool:
    """Whether a host of a host file is the machine that this runs on.

    By name where that suffices, else by address: one of this machine's interfaces has it.

    Args:
        host: Host to check.
        resolve: Looks up a name. It may hang.
        timeout_s: Time limit of that; a name that takes longer is another machine's.
    """
    own_name = socket.gethostname().lower()
    if host.key in _LOCAL_NAMES or host.key in (own_name, own_name.partition(".")[0]):
        return True
    if _is_address(host.name):
        return _is_own(host.name)
    addresses = resolve_all([host.name], resolve=resolve, limit_s=timeout_s)[host.name]
    return any(_is_own(address) for address in addresses)


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _is_own(address: str) -> bool:
    # Here: what it imports would slow every other command.
    from probes.network.interfaces import read_addresses

    bare = ip_address(address.partition("%")[0])
    own = {ip_address(one) for addresses in read_addresses().values() for one in addresses}
    return bare.is_loopback or bare in own
