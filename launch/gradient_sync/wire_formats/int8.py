"""8 bits: whole numbers from -127 to 127, with one scale for each block of 1,024.

The scale of a block is its largest magnitude / 127. A scale for a whole bucket would round small
layers beside large ones to zero for many steps.

Source: Dettmers, "8-bit approximations for parallelism in deep learning", 2015,
https://arxiv.org/abs/1511.04561 (which compares ways to use the 8 bits).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from launch.gradient_sync.wire_formats._base import TILE, Bytes, Floats, Numbers, WireFormat

BLOCK = 1024
_STEPS = 127
_SMALLEST = np.float32(_STEPS) * np.finfo(np.float32).tiny
"""Blocks below it would have a scale that is no normal number: they wait in the errors."""


class EightBitFormat(WireFormat):
    """A quarter of the bytes of float32. A block with a value that is not finite is read as NaN."""

    processor_s_per_byte = 6e-10

    def num_bytes(self, count: int) -> int:
        return 4 * _blocks(count) + count

    def encode(self, values: Numbers, errors: Floats) -> Bytes:
        message = np.empty(self.num_bytes(values.size), np.uint8)
        scales, codes = _parts(message, values.size)
        padded = BLOCK * _blocks(min(values.size, TILE))
        memory, scratch = np.zeros(padded, np.float32), np.empty(padded, np.float32)
        for low in range(0, values.size, TILE):
            tile = slice(low, min(low + TILE, values.size))
            count = tile.stop - low
            blocks = _blocks(count)
            wanted, read = (each[: blocks * BLOCK].reshape(-1, BLOCK) for each in (memory, scratch))
            flat, flat_read = wanted.reshape(-1), read.reshape(-1)
            np.add(values[tile], errors[tile], out=flat[:count], casting="same_kind")
            flat[count:] = 0.0
            highest = np.abs(wanted, out=read).max(1)
            is_finite = np.isfinite(highest)
            if not is_finite.all():
                wanted[~is_finite] = 0.0
            is_used = is_finite & (highest >= _SMALLEST)
            scale = np.where(is_used, highest / np.float32(_STEPS), np.float32(0))
            inverse = np.divide(1, scale, out=np.zeros_like(scale), where=is_used)
            np.rint(np.multiply(wanted, inverse[:, None], out=read), out=read)
            codes[tile] = flat_read[:count]
            np.multiply(read, scale[:, None], out=read)
            np.subtract(flat[:count], flat_read[:count], out=errors[tile])
            scale[~is_finite] = np.nan
            scales[low // BLOCK : low // BLOCK + blocks] = scale
        return message

    def add(self, message: Bytes, values: Numbers) -> None:
        for tile, read in _read(message, values.size):
            values[tile] += read

    def replace(self, message: Bytes, values: Numbers) -> None:
        for tile, read in _read(message, values.size):
            values[tile] = read


def _blocks(count: int) -> int:
    return -(-count // BLOCK)


def _parts(message: Bytes, count: int) -> tuple[Floats, np.ndarray[tuple[int], np.dtype[np.int8]]]:
    """Give the scales of a message, and its whole numbers."""
    start = 4 * _blocks(count)
    return message[:start].view(np.float32), message[start:].view(np.int8)


def _read(message: Bytes, count: int) -> Iterator[tuple[slice, Floats]]:
    """Give what a message says, tile by tile."""
    scales, codes = _parts(message, count)
    for low in range(0, count, TILE):
        tile = slice(low, min(low + TILE, count))
        read = codes[tile].astype(np.float32)
        whole = len(read) - len(read) % BLOCK
        first = low // BLOCK
        blocks = read[:whole].reshape(-1, BLOCK)
        blocks *= scales[first : first + len(blocks), None]
        if whole < len(read):
            read[whole:] *= scales[first + len(blocks)]
        yield tile, read
