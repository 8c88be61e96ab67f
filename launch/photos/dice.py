"""How does a picture get its random choices?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from numpy.random import PCG64, Generator

T = TypeVar("T")

Colour = tuple[int, int, int]


class Dice:
    """Random choices that depend on the seeds alone.

    All are made from `random` of numpy's generator, whose stream does not change between
    releases as that of the other draws may.
    """

    def __init__(self, *seeds: int) -> None:
        self._next = Generator(PCG64(seeds)).random

    def between(self, low: float, high: float) -> float:
        """Draw a number from ``low`` to ``high``."""
        return low + (high - low) * self._next()

    def whole(self, low: int, high: int) -> int:
        """Draw a whole number, ``high`` included."""
        return low + int((high - low + 1) * self._next())

    def chance(self, probability: float) -> bool:
        """Say yes as often as asked."""
        return self._next() < probability

    def pick(self, choices: Sequence[T]) -> T:
        """Draw one of several things."""
        return choices[self.whole(0, len(choices) - 1)]

    def shade(self, colour: Colour, spread: int = 18) -> Colour:
        """Draw a colour near another."""
        light = self.between(-spread, spread)
        red, green, blue = (
            max(0, min(255, int(part + light + self.between(-spread, spread) / 2)))
            for part in colour
        )
        return red, green, blue
