"""Conversion of bfloat16, which NumPy lacks: the upper half of a float32."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Halves = NDArray[np.uint16]


def from_bfloat16(halves: NDArray[Any]) -> Floats:
    """Give the floats that bfloat16 numbers stand for, exactly."""
    return (halves.astype(np.uint32) << 16).view(np.float32)


def to_bfloat16(floats: Floats) -> Halves:
    """Round floats to the nearest bfloat16, ties to even; NaN stays NaN, infinity infinity."""
    bits = np.ascontiguousarray(floats).view(np.uint32)
    rounded = (bits + (((bits >> 16) & 1) + np.uint32(0x7FFF))) >> 16
    quiet_nan = np.uint32(0x7FC0) | (bits >> 16)
    return np.where(np.isnan(floats), quiet_nan, rounded).astype(np.uint16)
