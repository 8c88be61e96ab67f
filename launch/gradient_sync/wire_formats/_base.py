"""Contract of a wire format: how numbers are written in a message, and read from it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]
Numbers = NDArray[Any]
"""One-dimensional and contiguous: float32, or float64 of models that are trained so."""

TILE = 2**16
"""Numbers that are written or read at a time, so that all passes over them find them in the cache.
A multiple of every block of numbers that has something in common."""


class WireFormat(ABC):
    """How numbers are written in messages between nodes. Keeps no state.

    What is read from a message is the same on every node, to the last bit.

    A format that is not exact leaves an *error*: what a message does not say. It is kept where it
    was made and added to the numbers of the next message about the same gradients (error feedback),
    so that nothing is lost, only late.

    Sources: Seide et al., "1-bit stochastic gradient descent", 2014; Karimireddy et al., "Error
    feedback fixes SignSGD", 2019, https://arxiv.org/abs/1901.09847.
    """

    is_exact = False
    """Whether a message says everything, in the numbers' own precision."""

    processor_s_per_byte: float
    """Processor time of a rank for each byte of float32 gradients: writing them once and reading
    them twice, beyond what the exact format takes. Measured by ``bench/averaging_schemes.py``."""

    @abstractmethod
    def num_bytes(self, count: int) -> int:
        """Return the size of a message about so many float32 numbers."""

    @abstractmethod
    def encode(self, values: Numbers, errors: Floats) -> Bytes:
        """Write values plus errors.

        A value that is not finite is read as one that is not, with or without its neighbours: a
        training that has become NaN must show it on every node. It leaves no error.

        Args:
            values: To be written; they stay as they are.
            errors: Of the last message about them; overwritten by those of this one.

        Returns:
            The message, aligned to four bytes.
        """

    @abstractmethod
    def add(self, message: Bytes, values: Numbers) -> None:
        """Add what a message says to values."""

    @abstractmethod
    def replace(self, message: Bytes, values: Numbers) -> None:
        """Overwrite values by what a message says. It may be in `memory_of_total`."""

    def size_of(self, values: Numbers) -> int:
        """Return the size of a message about these values."""
        return self.num_bytes(values.size)

    def memory_of_total(self, values: Numbers) -> Bytes:
        """Give the memory for a message that is to replace values."""
        return np.empty(self.size_of(values), np.uint8)
