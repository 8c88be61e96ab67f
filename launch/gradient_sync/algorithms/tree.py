"""Binomial tree: sums go up to rank 0 in ``log2(n)`` messages that follow one another, and down.

It has the fewest messages in a row, for small gradients and many nodes. Whole blocks are sent, and
rank 0 receives ``log2(n)`` of them and sends as many, where a ring of any size has less than two.

Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in
MPICH", 2005, https://doi.org/10.1177/1094342005051521.
"""

from __future__ import annotations

from launch.gradient_sync.algorithms._base import AllReduceAlgorithm, Exchange, Transfer


class BinomialTree(AllReduceAlgorithm):
    """One segment; rank ``r`` sends to ``r`` without its lowest bit."""

    def segments(self, size: int) -> int:
        return 1

    def exchanges(self, rank: int, size: int) -> list[Exchange]:
        children, span = [], 1
        while span < size and not rank & span:
            if rank + span < size:
                children.append(Transfer(rank + span, 0))
            span *= 2
        up = [Exchange(is_total=False, receives=[child]) for child in children]
        if rank:
            parent = [Transfer(rank - span, 0)]
            up.append(Exchange(is_total=False, sends=parent))
            up.append(Exchange(is_total=True, receives=parent))
        down = [Exchange(is_total=True, sends=children[::-1])] if children else []
        return up + down

    def load(self, size: int) -> float:
        return 2 * (size - 1).bit_length()

    def hops(self, size: int) -> int:
        return 2 * (size - 1).bit_length()
