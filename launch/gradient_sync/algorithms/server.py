"""Parameter server: rank 0 is sent all gradients, adds them up, and sends the sum to everybody.

Its link carries ``n - 1`` blocks to it and as many from it: twice as much as a ring for two nodes,
and more the more there are. Rank 0 trains as the others do.

Source: Li et al., "Scaling distributed machine learning with the parameter server", 2014.
"""

from __future__ import annotations

from launch.gradient_sync.algorithms._base import AllReduceAlgorithm, Exchange, Transfer


class ParameterServer(AllReduceAlgorithm):
    """One segment, and one server."""

    def segments(self, size: int) -> int:
        return 1

    def exchanges(self, rank: int, size: int) -> list[Exchange]:
        server = [Transfer(0, 0)]
        workers = [Transfer(other, 0) for other in range(1, size)]
        if rank:
            return [
                Exchange(is_total=False, sends=server),
                Exchange(is_total=True, receives=server),
            ]
        return [
            Exchange(is_total=False, receives=workers),
            Exchange(is_total=True, sends=workers),
        ]

    def load(self, size: int) -> float:
        return 2 * (size - 1)

    def hops(self, size: int) -> int:
        return 2
