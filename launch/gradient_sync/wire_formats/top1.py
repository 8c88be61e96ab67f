"""The largest 1 % of the numbers by magnitude, with their positions; the rest waits in the errors.

The exact largest ones are found without sorting: a threshold from a sample leaves few candidates.

Sources: Aji and Heafield, "Sparse communication for distributed gradient descent", 2017,
https://arxiv.org/abs/1704.05021; Lin et al., "Deep gradient compression", 2018,
https://arxiv.org/abs/1712.01887. Sums are cut to 1 % again on their way, as in Shi et al., "A
distributed synchronous SGD algorithm with global top-k sparsification", 2019,
https://arxiv.org/abs/1901.04359: so a message does not grow with the number of nodes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from launch.gradient_sync.wire_formats._base import Bytes, Floats, Numbers, WireFormat

_ONE_OF = 100
_SAMPLE = 4096
_MORE = 1.3
"""Part by which the threshold of a sample aims at more candidates than are needed."""


class LargestFormat(WireFormat):
    """A fiftieth of the bytes of float32: four for a position and four for a value."""

    processor_s_per_byte = 4e-10

    def num_bytes(self, count: int) -> int:
        return 8 * _chosen(count)

    def encode(self, values: Numbers, errors: Floats) -> Bytes:
        np.add(values, errors, out=errors, casting="same_kind")
        magnitudes = np.abs(errors)
        is_finite = bool(np.isfinite(magnitudes.max(initial=0.0)))
        if not is_finite:
            magnitudes[np.isnan(magnitudes)] = np.inf  # so that they are found
        positions = _find_largest(magnitudes, _chosen(values.size))
        message = np.empty(self.num_bytes(values.size), np.uint8)
        written, content = _parts(message)
        written[:] = positions
        content[:] = errors[positions]
        errors[positions] = 0.0
        if not is_finite:
            errors[~np.isfinite(errors)] = 0.0
        return message

    def add(self, message: Bytes, values: Numbers) -> None:
        positions, content = _parts(message)
        values[positions] += content  # no position is there twice

    def replace(self, message: Bytes, values: Numbers) -> None:
        positions, content = _parts(message)
        values[:] = 0.0
        values[positions] = content


def _chosen(count: int) -> int:
    """Return how many of so many numbers are written: at least one."""
    return -(-count // _ONE_OF)


def _parts(message: Bytes) -> tuple[NDArray[np.uint32], Floats]:
    """Give the positions in a message, and the values there."""
    half = message.size // 2
    return message[:half].view(np.uint32), message[half:].view(np.float32)


def _find_largest(magnitudes: Floats, count: int) -> NDArray[Any]:
    """Give the positions of so many largest magnitudes, in order."""
    sample = magnitudes[:: max(1, magnitudes.size // _SAMPLE)]
    wanted = min(sample.size, int(_MORE * sample.size / _ONE_OF) + 8)
    if count == 0:
        return np.empty(0, np.intp)
    threshold = np.partition(sample, sample.size - wanted)[sample.size - wanted]
    candidates = np.flatnonzero(magnitudes >= threshold if threshold > 0 else magnitudes)
    if candidates.size < count:  # the sample was misleading, or nearly all of them are zero
        candidates = np.arange(magnitudes.size)
    if candidates.size > count:
        among = np.argpartition(magnitudes[candidates], candidates.size - count)
        candidates = np.sort(candidates[among[candidates.size - count :]])
    return candidates
