"""bfloat16: the upper half of each float32, rounded to the nearest."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from launch.gradient_sync.wire_formats._base import TILE, Bytes, Floats, Numbers, WireFormat

Halves = NDArray[np.uint16]


class Bfloat16Format(WireFormat):
    """Half the bytes of float32, with its range and 8 bits of precision."""

    processor_s_per_byte = 5e-10

    def num_bytes(self, count: int) -> int:
        return 2 * count

    def encode(self, values: Numbers, errors: Floats) -> Bytes:
        halves = np.empty(values.size, np.uint16)
        for low in range(0, values.size, TILE):
            tile = slice(low, low + TILE)
            wanted = values[tile].astype(np.float32)
            wanted += errors[tile]
            rounded = _round_finite(wanted)
            halves[tile] = rounded
            rounded <<= 16
            with np.errstate(invalid="ignore"):
                rest = np.subtract(wanted, rounded.view(np.float32), out=errors[tile])
            if not np.isfinite(rest).all():
                halves[tile] = to_bfloat16(wanted)
                # A gradient that is not finite would spoil all later ones.
                rest[~np.isfinite(rest)] = 0.0
        return halves.view(np.uint8)

    def add(self, message: Bytes, values: Numbers) -> None:
        halves = message.view(np.uint16)
        for low in range(0, values.size, TILE):
            values[low : low + TILE] += from_bfloat16(halves[low : low + TILE])

    def replace(self, message: Bytes, values: Numbers) -> None:
        halves = message.view(np.uint16)
        for low in range(0, values.size, TILE):
            values[low : low + TILE] = from_bfloat16(halves[low : low + TILE])


def from_bfloat16(halves: NDArray[Any]) -> Floats:
    """Give the floats that bfloat16 numbers stand for, exactly."""
    return (halves.astype(np.uint32) << 16).view(np.float32)


def to_bfloat16(floats: Floats) -> Halves:
    """Round floats to the nearest bfloat16, ties to even; NaN stays NaN, infinity infinity."""
    contiguous = np.ascontiguousarray(floats)
    quiet_nan = np.uint32(0x7FC0) | (contiguous.view(np.uint32) >> 16)
    rounded = _round_finite(contiguous)
    return np.where(np.isnan(floats), quiet_nan, rounded).astype(np.uint16)


def _round_finite(floats: Floats) -> NDArray[np.uint32]:
    """Give the bfloat16 numbers nearest to floats, ties to even, where these are no NaN."""
    bits = floats.view(np.uint32)
    rounded: NDArray[np.uint32] = np.right_shift(bits, np.uint32(16))
    rounded &= np.uint32(1)
    rounded += np.uint32(0x7FFF)
    rounded += bits
    rounded >>= np.uint32(16)
    return rounded
