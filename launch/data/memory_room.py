"""Room for decoded pictures in memory, beside what trains."""

from __future__ import annotations

from probes.memory import read_memory

_MEMORY_SHARE = 0.5
"""Share of the usable memory that decoded pictures may take in the page cache: what trains needs
memory too."""


def memory_room_bytes() -> int:
    """Give the memory that decoded pictures may take."""
    return int(_MEMORY_SHARE * read_memory().usable_bytes)
