"""Free ports, for servers whose port has to be known before they start."""

from __future__ import annotations

import contextlib
import random
import socket


def free_port() -> int:
    """Give a port that nobody has. No connection is given it meanwhile: Linux takes higher ones."""
    while True:
        port = random.SystemRandom().randrange(11_000, 20_000)
        with contextlib.suppress(OSError), socket.socket() as one:
            one.bind(("127.0.0.1", port))
            return port
