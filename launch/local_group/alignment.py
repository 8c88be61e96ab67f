"""Alignment of tensors in shared memory: no cache line holds parts of two."""

from __future__ import annotations

ALIGNMENT_BYTES = 64
"""A cache line: no two parts write to the same one."""


def aligned(num_bytes: int, alignment: int = ALIGNMENT_BYTES) -> int:
    """Round a size up so that what follows is aligned."""
    return -(-num_bytes // alignment) * alignment
