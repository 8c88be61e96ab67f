"""Where does a tensor begin in memory that several share? Where no cache line holds two of them."""

from __future__ import annotations

ALIGNMENT_BYTES = 64
"""A cache line: no two parts write to the same one."""


def aligned(num_bytes: int) -> int:
    """Round a size up so that what follows begins in a line of its own."""
    return -(-num_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
