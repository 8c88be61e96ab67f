"""Collective operations on documents of ranks, as bytes; ranks sleep while they wait."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from mpi4py import MPI

Bytes = np.ndarray[Any, np.dtype[np.uint8]]

_MIN_SLEEP_S = 0.001
_MAX_SLEEP_S = 0.05


class Ranks:
    """The ranks of a communicator. Every method is collective: each rank must make the same call.

    MPI's blocking calls keep a core busy while they wait, and workers need that core; these do
    not. Documents are bytes, mostly JSON: data, and never a program, as a pickle would be.
    """

    def __init__(self, comm: MPI.Comm) -> None:
        self._comm = comm
        self.rank = comm.rank
        self.size = comm.size

    def broadcast(self, document: bytes = b"") -> bytes:
        """Give every rank the document of rank 0; those of the others are ignored."""
        size = np.array([len(document)], dtype=np.int64)
        _wait(self._comm.Ibcast(size))
        whole = _bytes(document) if self.rank == 0 else np.empty(int(size[0]), dtype=np.uint8)
        _wait(self._comm.Ibcast(whole))
        return whole.tobytes()

    def all_gather(self, document: bytes) -> list[bytes]:
        """Give every rank the document of every rank, by rank."""
        sizes = np.empty(self.size, dtype=np.int64)
        _wait(self._comm.Iallgather(np.array([len(document)], dtype=np.int64), sizes))
        whole = np.empty(int(sizes.sum()), dtype=np.uint8)
        _wait(self._comm.Iallgatherv(_bytes(document), [whole, sizes]))
        ends = [0, *np.cumsum(sizes).tolist()]
        return [whole[start:end].tobytes() for start, end in pairwise(ends)]

    def barrier(self) -> None:
        """Wait until every rank has made this call."""
        _wait(self._comm.Ibarrier())


def _bytes(document: bytes) -> Bytes:
    return np.frombuffer(document, dtype=np.uint8).copy()


def _wait(request: MPI.Request) -> None:
    sleep_s = _MIN_SLEEP_S
    while not request.Test():
        time.sleep(sleep_s)
        sleep_s = min(sleep_s * 1.1, _MAX_SLEEP_S)
