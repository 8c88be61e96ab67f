"""Contract of an all-reduce algorithm: the exchanges of each rank, one after the other."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Transfer:
    """A message about one segment."""

    peer: int
    """Rank that it is sent to, or received from."""

    segment: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """Messages that a rank sends and receives at once; it then waits for all of them."""

    is_total: bool
    """Whether they are sums over all ranks, which replace what a rank has and are passed on as they
    are; else they are parts of sums, which are added to what a rank has."""

    sends: Sequence[Transfer] = ()
    receives: Sequence[Transfer] = ()


class AllReduceAlgorithm(ABC):
    """Messages between ranks, after which every rank has the sum over all. Keeps no state.

    A block of numbers is cut into segments. A rank adds up what it receives of a segment with its
    own numbers, and writes the result into one message; so every rank writes every segment exactly
    once, as a part of its sum or as the sum. The errors that a wire format leaves are therefore as
    large as the block, on every rank, whatever the algorithm.

    Between two ranks, messages about parts come in the order in which they are sent, and so do
    those about sums.
    """

    @abstractmethod
    def segments(self, size: int) -> int:
        """Return the number of segments for so many ranks."""

    @abstractmethod
    def exchanges(self, rank: int, size: int) -> list[Exchange]:
        """List the exchanges of a rank among so many, two or more."""

    @abstractmethod
    def load(self, size: int) -> float:
        """Return how often the busiest link carries the block, one exchange after the other.

        Both directions at once count once. Exchanges of several blocks could overlap; sums up a
        tree and down again were measured not to (``bench/sums.py``).
        """

    @abstractmethod
    def hops(self, size: int) -> int:
        """Return the number of messages that follow one another until all have the sum."""
