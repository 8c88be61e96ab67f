"""Ways to sum numbers over all ranks, in place: ddlplan's ring, MPI's own, a tree, servers, gloo.

*Buckets* are the pieces that gradients are cut into in a training, and as many are in flight here.
What does not block is polled alike: by `BucketSum.sum_all`, as ddlplan's ring is.

Open MPI's ``Iallreduce`` is libnbc's; the algorithms of coll/tuned are those of the blocking
``Allreduce``, which spins while it waits. Both are chosen here while the job runs, by MPI's tools
interface: libnbc reads its choice at every call, coll/tuned when it makes a communicator
(``nbc_iallreduce.c`` and ``coll_tuned_module.c`` of Open MPI). If none is chosen, a sum in place is
libnbc's binomial one, whatever its size.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from mpi4py import MPI

from launch.gradient_sync.allreduce.bucket_sum import (
    BucketSum,
    FlatArray,
    PendingSum,
    as_mpi_buffer,
    segment_bounds,
)
from launch.gradient_sync.allreduce.buckets import BUCKET_BYTES
from launch.gradient_sync.allreduce.encoded_sum import make_sum
from launch.gradient_sync.wire_formats._base import Floats as Errors

Floats = np.ndarray[Any, np.dtype[np.float32]]
SumInPlace = Callable[[Floats], None]
"""Replaces numbers by their sum over all ranks; collective."""

Steps = Iterator[list[MPI.Request]]
Schedule = Callable[[MPI.Comm, FlatArray, int], Steps]
"""The steps of a bucket's sum, each the requests that the next one waits for. The last argument is
the first of two tags of its own."""

_PORT = 29500
_LIBNBC = "coll_libnbc_iallreduce_algorithm"
_LIBNBC_ALGORITHMS = {"ring": 1, "binomial": 2, "rabenseifner": 3, "recursive doubling": 4}
_TUNED = "coll_tuned_allreduce_algorithm"
_TUNED_ALGORITHMS = {
    "reduce + bcast": 2,
    "recursive doubling": 3,
    "ring": 4,
    "segmented ring": 5,
    "rabenseifner": 6,
}
_SEGMENT_BYTES = 1 << 20
"""Of the segmented ring, the only one that has segments."""


def all_ways(comm: MPI.Comm, first_address: str) -> dict[str, SumInPlace]:
    """Give every way by its name, ddlplan's own first. Collective.

    Args:
        comm: Of all ranks.
        first_address: Where rank 0 can be reached.
    """
    ways: dict[str, SumInPlace] = {"ddlplan": _in_buckets(make_sum(comm.Dup()))}
    for name, number in _LIBNBC_ALGORITHMS.items():
        adder = ScheduledSum(comm.Dup(), _iallreduce)
        for pieces, way in (("buckets", _in_buckets(adder)), ("one call", _at_once(adder))):
            ways[f"Iallreduce {name}, {pieces}"] = partial(_with_libnbc, number, way)
    set_control_variable(f"{_TUNED}_segmentsize", _SEGMENT_BYTES)
    for name, number in _TUNED_ALGORITHMS.items():
        set_control_variable(_TUNED, number)
        allreduce = partial(comm.Dup().Allreduce, MPI.IN_PLACE)
        ways[f"Allreduce {name}, buckets"] = partial(_each_bucket, allreduce)
        ways[f"Allreduce {name}, one call"] = allreduce
    for name, algorithm in _ALGORITHMS.items():
        ways[f"{name}, buckets"] = _in_buckets(make_sum(comm.Dup(), all_reduce=algorithm))
    sharded = ScheduledSum(comm.Dup(), _sharded_server)
    ways["sharded parameter server, buckets"] = _in_buckets(sharded)
    gloo = Gloo(comm, first_address)
    return ways | {"gloo, buckets": gloo.in_buckets, "gloo, one call": gloo.at_once}


def set_control_variable(name: str, value: int) -> None:
    """Set a whole number of Open MPI's while it runs, by MPI_T (MPI 4.1, chapter 15.3)."""
    mpi = ctypes.CDLL("libmpi.so.40")  # the one that mpi4py has loaded
    provided, index, count = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    handle, number = ctypes.c_void_p(), ctypes.c_int(value)
    for status in (
        mpi.MPI_T_init_thread(0, ctypes.byref(provided)),
        mpi.MPI_T_cvar_get_index(name.encode(), ctypes.byref(index)),
        mpi.MPI_T_cvar_handle_alloc(index, None, ctypes.byref(handle), ctypes.byref(count)),
        mpi.MPI_T_cvar_write(handle, ctypes.byref(number)),
        mpi.MPI_T_cvar_handle_free(ctypes.byref(handle)),
        mpi.MPI_T_finalize(),
    ):
        if status != 0:
            raise RuntimeError(f"{name}={value}: status {status} of MPI_T")


class ScheduledSum(BucketSum):
    """Adds up buckets by a schedule."""

    def __init__(self, comm: MPI.Comm, schedule: Schedule) -> None:
        super().__init__(comm)
        self._schedule = schedule

    def _begin(self, block: FlatArray, errors: Errors | None) -> PendingSum:
        return _PendingSchedule(block, self._schedule(self._comm, block, self._reserve_two_tags()))


class _PendingSchedule(PendingSum):
    """One bucket on its way. ``sent_bytes`` only tells how often it has moved."""

    def __init__(self, block: FlatArray, steps: Steps) -> None:
        self.block = block
        self.sent_bytes = 0
        self._steps = steps
        self._requests = next(steps)

    def advance(self) -> bool:
        while MPI.Request.Testall(self._requests):
            self.sent_bytes += 1
            if (requests := next(self._steps, None)) is None:
                return True
            self._requests = requests
        return False


def _iallreduce(comm: MPI.Comm, bucket: FlatArray, tag: int) -> Steps:
    yield [comm.Iallreduce(MPI.IN_PLACE, bucket)]


def _sharded_server(comm: MPI.Comm, bucket: FlatArray, tag: int) -> Steps:
    """Every rank is the server of a segment of its own."""
    bounds = segment_bounds(bucket.size, comm.size)
    segments = [bucket[low:high] for low, high in pairwise(bounds)]
    own = segments[comm.rank]
    others = [rank for rank in range(comm.size) if rank != comm.rank]
    received = {rank: np.empty_like(own) for rank in others}
    yield [
        *(comm.Irecv(as_mpi_buffer(received[rank]), rank, tag) for rank in others),
        *(comm.Isend(as_mpi_buffer(segments[rank]), rank, tag) for rank in others),
    ]
    for one in received.values():
        np.add(own, one, out=own)
    yield [
        *(comm.Irecv(as_mpi_buffer(segments[rank]), rank, tag + 1) for rank in others),
        *(comm.Isend(as_mpi_buffer(own), rank, tag + 1) for rank in others),
    ]


_ALGORITHMS: Mapping[str, str] = {"binomial tree": "tree", "parameter server": "server"}
"""Those of ``launch --all-reduce`` beside the ring."""


class Gloo:
    """``all_reduce`` of torch.distributed. It is joined, and torch loaded, at its first sum."""

    def __init__(self, comm: MPI.Comm, first_address: str) -> None:
        self._comm = comm
        self._first_address = first_address
        self._is_joined = False

    def in_buckets(self, numbers: Floats) -> None:
        """Start all buckets, and wait for them, as DistributedDataParallel does."""
        self._add_up(_buckets(numbers))

    def at_once(self, numbers: Floats) -> None:
        """Add them up in one call."""
        self._add_up([numbers])

    def _add_up(self, pieces: list[Floats]) -> None:
        import torch  # late: no other way needs it
        import torch.distributed as dist

        if not self._is_joined:
            self._is_joined = True
            torch.set_num_threads(1)
            address, rank, size = self._first_address, self._comm.rank, self._comm.size
            dist.init_process_group("gloo", f"tcp://{address}:{_PORT}", rank=rank, world_size=size)
        works = [dist.all_reduce(torch.from_numpy(one), async_op=True) for one in pieces]
        for work in works:
            work.wait()


def _buckets(numbers: Floats) -> list[Floats]:
    step = BUCKET_BYTES // numbers.itemsize
    return [numbers[low : low + step] for low in range(0, numbers.size, step)]


def _in_buckets(adder: BucketSum) -> SumInPlace:
    return lambda numbers: adder.sum_all(_buckets(numbers))


def _at_once(adder: BucketSum) -> SumInPlace:
    return lambda numbers: adder.sum_all([numbers])


def _each_bucket(add_up: SumInPlace, numbers: Floats) -> None:
    for bucket in _buckets(numbers):
        add_up(bucket)


def _with_libnbc(algorithm: int, way: SumInPlace, numbers: Floats) -> None:
    set_control_variable(_LIBNBC, algorithm)
    way(numbers)
