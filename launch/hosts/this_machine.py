"""Is a host this machine?"""

from __future__ import annotations

import socket
from collections.abc import Callable
from functools import partial
from ipaddress import ip_address
from queue import Empty, SimpleQueue
from threading import Thread

from launch.hosts.line import Host

RESOLVE_TIMEOUT_S = 2.0

_LOCAL_NAMES = frozenset({"localhost", "localhost.localdomain", "ip6-localhost"})


def resolve(name: str) -> set[str]:
    """Ask the system for the addresses of a name; none where it does not know any."""
    try:
        return {str(found[4][0]) for found in socket.getaddrinfo(name, None)}
    except (OSError, UnicodeError):
        return set()


def is_this_machine(
    host: Host,
    *,
    resolve: Callable[[str], set[str]] = resolve,
    timeout_s: float = RESOLVE_TIMEOUT_S,
) -> bool:
    """Tell whether a host of a host file is the machine that this runs on.

    By name where that suffices, else by address: one of this machine's interfaces has it.

    Args:
        host: Host to judge.
        resolve: Gives the addresses of a name. It may hang.
        timeout_s: How long to wait for that; a name that takes longer is another machine's.
    """
    own_name = socket.gethostname().lower()
    if host.key in _LOCAL_NAMES or host.key in (own_name, own_name.partition(".")[0]):
        return True
    name = host.name
    addresses = {name} if _is_address(name) else _within(timeout_s, partial(resolve, name))
    return any(_is_own(address) for address in addresses)


def _within(timeout_s: float, ask: Callable[[], set[str]]) -> set[str]:
    """Wait for an answer, but no longer; the system's resolver cannot be interrupted."""
    answers: SimpleQueue[set[str]] = SimpleQueue()
    Thread(target=lambda: answers.put(ask()), daemon=True, name="resolve").start()
    try:
        return answers.get(timeout=timeout_s)
    except Empty:
        return set()


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _is_own(address: str) -> bool:
    from probes.network import read_addresses  # what it imports would slow every other command

    bare = ip_address(address.partition("%")[0])
    own = {ip_address(one) for addresses in read_addresses().values() for one in addresses}
    return bare.is_loopback or bare in own
