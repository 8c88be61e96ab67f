"""Which addresses have the names of the hosts? Asked of the system for all of them at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from queue import Empty, SimpleQueue
from threading import Thread

from launch.hosts.this_machine import resolve

LIMIT_S = 5.0

Resolve = Callable[[str], set[str]]
"""Gives the addresses of a name; none where it is not known."""

_THREADS = 32


def resolve_all(
    names: Iterable[str],
    *,
    resolve: Resolve = resolve,
    limit_s: float = LIMIT_S,
) -> dict[str, set[str]]:
    """Give the addresses of each name; none where the system does not know any in time.

    Args:
        names: Host names and addresses.
        resolve: Gives the addresses of one. It may hang, and cannot be interrupted.
        limit_s: How long to wait, for all of them together.
    """
    found: dict[str, set[str]] = {name: set() for name in names}
    asked: SimpleQueue[str] = SimpleQueue()
    answers: SimpleQueue[tuple[str, set[str]]] = SimpleQueue()
    for name in found:
        asked.put(name)

    def work() -> None:
        while True:
            try:
                name = asked.get_nowait()
            except Empty:
                return
            answers.put((name, resolve(name)))

    for _ in range(min(_THREADS, len(found))):
        Thread(target=work, daemon=True, name="resolve").start()
    deadline_s = time.monotonic() + limit_s
    for _ in range(len(found)):
        try:
            name, addresses = answers.get(timeout=max(deadline_s - time.monotonic(), 0))
        except Empty:
            break
        found[name] = addresses
    return found
