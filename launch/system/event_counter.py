"""Event counters (eventfd) that are waited for, whatever signals come meanwhile."""

from __future__ import annotations

import os


def await_events(descriptor: int) -> int:
    """Wait until events are counted, and take them.

    `os.eventfd_read` ends with an error where a signal is handled, or the process is stopped and
    goes on; unlike `os.read`, it does not try again (PEP 475).
    """
    while True:
        try:
            return os.eventfd_read(descriptor)
        except InterruptedError:  # its handler has run by now, and may have raised
            continue
