"""Attempts: how many wrong tokens a client may send before it has to wait."""

from __future__ import annotations

import ipaddress
import math
import time
from collections import OrderedDict

from planner.service.requests.documents import RequestError

_MOST_CLIENTS = 4096


class WrongTokens:
    """Counts wrong tokens by client: a number at once, then some more with time.

    Right tokens are never counted and always accepted: they are too long to be guessed, and on a
    machine of many users one of them could else lock out all others.
    """

    def __init__(self, at_once: int, per_s: float) -> None:
        self._at_once = at_once
        self._per_s = per_s
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def count(self, client: str) -> None:
        """Count one.

        Raises:
            RequestError: There were too many.
        """
        now, key = time.monotonic(), _network(client)
        left, at = self._left.pop(key, (float(self._at_once), now))
        left = min(self._at_once, left + (now - at) * self._per_s)
        self._left[key] = (left - 1 if left >= 1 else left, now)
        while len(self._left) > _MOST_CLIENTS:
            self._left.popitem(last=False)
        if left < 1:
            wait_s = math.ceil((1 - left) / self._per_s)
            raise RequestError(
                429,
                f"too many wrong tokens: wait {wait_s} s",
                headers={b"retry-after": str(wait_s).encode()},
            )


def _network(address: str) -> str:
    """Give the network of an IPv6 address, all of which one person may have; else the address."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address[:64]
    if found.version == 4:
        return str(found)
    return str(ipaddress.ip_network(f"{found}/64", strict=False))
