"""All-reduce of buckets by an algorithm and in a wire format, several at once, without spinning.

Several blocks are in flight at once, each at an exchange of its own, so that the link is never idle
while one is added or waited for. Blocking calls of MPI spin, and would take a core from the workers
that still compute: here requests are polled, and between two polls the rank sleeps.

A rank adds what it receives of a segment to its own numbers in full precision, and then writes the
result into a message, with an error that it keeps. Who has the sum over all ranks of a segment
writes it once; the others pass the message on as it is. All ranks read the sum from it, who wrote
it too: they end with the same bits.

Errors live as long as the rank. After a step in which no node has a gradient for a parameter, what
of its error was sent with the zeros is lost, as its update is left out.

Source, for errors of sums too: Tang et al., "DoubleSqueeze: Parallel Stochastic Gradient Descent
with Double-pass Error-Compensated Compression", 2019, https://arxiv.org/abs/1905.05957.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from mpi4py import MPI

from launch.gradient_sync.algorithms import load_algorithm
from launch.gradient_sync.algorithms._base import AllReduceAlgorithm, Exchange
from launch.gradient_sync.allreduce.bucket_sum import (
    BucketSum,
    FlatArray,
    PendingSum,
    as_mpi_buffer,
    segment_bounds,
)
from launch.gradient_sync.allreduce.buckets import as_reals
from launch.gradient_sync.wire_formats import load_wire_format
from launch.gradient_sync.wire_formats._base import Bytes, Floats, WireFormat


class EncodedSum(BucketSum):
    """All-reduce of blocks.

    Args:
        comm: For these sums alone: other messages would be taken for theirs.
        algorithm: Who sends what to whom.
        wire_format: How it is written. One that is not exact needs the errors of each block.
    """

    def __init__(
        self, comm: MPI.Comm, algorithm: AllReduceAlgorithm, wire_format: WireFormat
    ) -> None:
        super().__init__(comm)
        self.wire_format = wire_format
        self.segments = algorithm.segments(comm.size)
        self.exchanges = algorithm.exchanges(comm.rank, comm.size) if comm.size > 1 else []
        self.spare_buffers: list[Bytes] = []
        """For messages that are received: finished sums have left them."""

    def _begin(self, block: FlatArray, errors: Floats | None) -> PendingSum:
        assert errors is not None or self.wire_format.is_exact, "each block has its own errors"
        errors = np.empty(0, np.float32) if errors is None else errors
        return _PendingEncodedSum(self, block, errors, self._reserve_two_tags())


def make_sum(comm: MPI.Comm, *, all_reduce: str = "ring", wire: str = "fp32") -> EncodedSum:
    """Make the sum of these names.

    Args:
        comm: For these sums alone.
        all_reduce: One of `launch.gradient_sync.algorithms.algorithm_names`.
        wire: One of `launch.gradient_sync.wire_formats.wire_format_names`.
    """
    return EncodedSum(comm, load_algorithm(all_reduce), load_wire_format(wire))


class _PendingEncodedSum(PendingSum):
    """One block in flight.

    Messages about parts have ``tag``, those about sums the next one.
    """

    def __init__(self, owner: EncodedSum, block: FlatArray, errors: Floats, tag: int) -> None:
        self.block = block
        self.sent_bytes = 0
        self._comm = owner._comm
        self._wire_format = owner.wire_format
        reals = as_reals(block)
        bounds = list(pairwise(segment_bounds(reals.size, owner.segments)))
        self._values = [reals[low:high] for low, high in bounds]
        self._errors = [errors[low:high] for low, high in bounds]
        self._totals: dict[int, Bytes] = {}
        """Messages about the sums over all ranks, by segment."""
        self._exchanges = iter(owner.exchanges)
        self._spare_buffers = owner.spare_buffers
        self._tag = tag
        self._received: list[tuple[int, Bytes]] = []
        """Segment and message of each transfer to this rank."""
        self._outgoing: list[Bytes] = []
        self._requests: list[MPI.Request] = []
        self._exchange: Exchange | None = None
        self._start_next()

    def advance(self) -> bool:
        while self._exchange is not None and MPI.Request.Testall(self._requests):
            self._finish(self._exchange)
            self._start_next()
        return self._exchange is None

    def _start_next(self) -> None:
        self._exchange = exchange = next(self._exchanges, None)
        if exchange is None:
            return
        tag = self._tag + exchange.is_total
        self._received = [
            (each.segment, self._make_buffer(each.segment, is_total=exchange.is_total))
            for each in exchange.receives
        ]
        receives = [
            self._comm.Irecv(as_mpi_buffer(message), each.peer, tag)
            for each, (_, message) in zip(exchange.receives, self._received, strict=True)
        ]
        # Held until they are sent.
        self._outgoing = [
            self._find_total(each.segment) if exchange.is_total else self._encode(each.segment)
            for each in exchange.sends
        ]
        sends = [
            self._comm.Isend(as_mpi_buffer(message), each.peer, tag)
            for each, message in zip(exchange.sends, self._outgoing, strict=True)
        ]
        self.sent_bytes += sum(message.nbytes for message in self._outgoing)
        self._requests = receives + sends

    def _finish(self, exchange: Exchange) -> None:
        for segment, message in self._received:
            if exchange.is_total:
                self._wire_format.replace(message, self._values[segment])
                self._totals[segment] = message
            else:
                self._wire_format.add(message, self._values[segment])
                self._spare_buffers.append(message)

    def _make_buffer(self, segment: int, *, is_total: bool) -> Bytes:
        values = self._values[segment]
        if is_total:
            return self._wire_format.memory_of_total(values)
        num_bytes = self._wire_format.size_of(values)
        spare = self._spare_buffers.pop() if self._spare_buffers else np.empty(0, np.uint8)
        return spare[:num_bytes] if spare.nbytes >= num_bytes else np.empty(num_bytes, np.uint8)

    def _encode(self, segment: int) -> Bytes:
        return self._wire_format.encode(self._values[segment], self._errors[segment])

    def _find_total(self, segment: int) -> Bytes:
        """Give the message that carries a sum; encode it first where this rank has made the sum."""
        if segment not in self._totals:
            self._totals[segment] = self._encode(segment)
            self._wire_format.replace(self._totals[segment], self._values[segment])
        return self._totals[segment]
