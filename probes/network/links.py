"""Latency and bandwidth between each pair of nodes.

MPI's blocking calls spin: a rank that waits in one keeps a core busy. So only the two ranks of the
pair that is being measured wait in them, and the others poll. In
what takes longer than a message on a fast link, these two poll as well: a node that may use a part
of a core would else be stopped in between.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from probes.network.waiting import POLL_S, wait

if TYPE_CHECKING:
    from mpi4py import MPI

Bytes = np.ndarray[Any, np.dtype[np.uint8]]

_TAG = 77
_PINGS = 200
_PING_SHARE = 0.25
_MIN_PAIR_S, _MAX_PAIR_S = 0.15, 0.6
_FIRST_BYTES, _MAX_BYTES = 1 << 16, 1 << 22
_LONG_EXCHANGE_S = 0.02
"""An exchange that takes as long shows the bandwidth, and not what each message costs."""

_MAX_EXCHANGES = 9
_PARTS = 4
"""Of an exchange, on their way at once, as blocks of gradients are: one message of 4 MiB each way
filled a link of 1 Gb/s by half (Open MPI 5.0.11 over TCP), four of a quarter of it by 0.94."""

_SPIN_S = 0.002
_SLEEP_SHARE = 0.05
"""Of the time that a message has taken so far: the end of it is noticed so much later at most, and
the 50 us that a sleep takes by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """Latency and bandwidth between two nodes."""

    first: int
    """Rank of one of them, the lower."""

    second: int

    latency_s: float
    """From one to the other: half of a round trip of a small message."""

    bytes_per_s: float
    """Each way while both send, as they do in an all-reduce."""


def measure_links(comm: MPI.Comm, *, time_limit_s: float = 20.0) -> tuple[Link, ...]:
    """Measure latency and bandwidth between every two ranks of ``comm``.

    Collective. One pair after another, as long as there is time for each: a cable or an uplink
    that several pairs share would else seem slower than it is for the one message at a time that
    a ring sends over it. Of many nodes there are too many pairs for that; then disjoint pairs take
    their turn at once, as in a tournament.

    Args:
        comm: Ranks to measure.
        time_limit_s: About how long it may take; links below 10 Mb/s may take longer.

    Returns:
        Every pair, the same on every rank; none where there is one rank.
    """
    size = comm.Get_size()
    found = np.zeros((2, size, size))
    at_once = size * (size - 1) / 2 * _MIN_PAIR_S > time_limit_s
    rounds = list(pair_rounds(size, at_once=at_once))
    pair_s = min(max(time_limit_s / max(len(rounds), 1), _MIN_PAIR_S), _MAX_PAIR_S)
    rank = comm.Get_rank()
    for pairs in rounds:
        wait(comm.Ibarrier())
        for pair in pairs:
            if rank in pair:
                found[:, pair[0], pair[1]] = _measure_pair(comm, pair, pair_s)
    total = np.empty_like(found)
    wait(comm.Iallreduce(found, total))  # each was measured by one rank, the others have zeros
    return tuple(
        Link(
            first=first,
            second=second,
            latency_s=float(total[0, first, second]),
            bytes_per_s=float(total[1, first, second]),
        )
        for first, second in combinations(range(size), 2)
    )


def pair_rounds(size: int, *, at_once: bool) -> Iterator[list[tuple[int, int]]]:
    """Give every pair of so many ranks once, in rounds of pairs that are measured together.

    With ``at_once`` it is a round-robin tournament by the circle method: one seat stays, the others
    move on by one, and who sits opposite are a pair; with an odd number one sits out. Otherwise
    each pair is a round of its own.
    """
    if not at_once:
        yield from ([pair] for pair in combinations(range(size), 2))
        return
    seats = list(range(size + size % 2))
    half = len(seats) // 2
    for _ in range(len(seats) - 1):
        opposite = zip(seats[:half], reversed(seats[half:]), strict=True)
        yield [(min(pair), max(pair)) for pair in opposite if max(pair) < size]
        seats = [seats[0], seats[-1], *seats[1:-1]]


def _measure_pair(comm: MPI.Comm, pair: tuple[int, int], limit_s: float) -> tuple[float, float]:
    """Measure latency and bandwidth; the second rank of the pair only answers, and gives zeros."""
    leads = comm.Get_rank() == pair[0]
    peer = pair[1] if leads else pair[0]
    if not leads:
        _echo(comm, peer)
        _follow_bandwidth(comm, peer)
        return 0.0, 0.0
    latency_s, least_s = _measure_latency(comm, peer, _PING_SHARE * limit_s)
    return latency_s, _measure_bandwidth(comm, peer, least_s, (1 - _PING_SHARE) * limit_s)


def _measure_latency(comm: MPI.Comm, peer: int, limit_s: float) -> tuple[float, float]:
    """Give the usual and the least latency: on busy cores the usual one is no longer the link's."""
    continues = np.ones(1, dtype=np.int64)
    times_s: list[float] = []
    deadline = time.perf_counter() + limit_s
    while continues[0]:
        started = time.perf_counter()
        continues[0] = len(times_s) < _PINGS and started < deadline
        comm.Send(continues, peer, _TAG)
        comm.Recv(continues, peer, _TAG)
        times_s.append(time.perf_counter() - started)
    warm_s = times_s[2:] or times_s  # the first ones open the connection
    return median(warm_s) / 2, min(warm_s) / 2


def _echo(comm: MPI.Comm, peer: int) -> None:
    continues = np.ones(1, dtype=np.int64)
    while continues[0]:
        comm.Recv(continues, peer, _TAG)
        comm.Send(continues, peer, _TAG)


def _measure_bandwidth(comm: MPI.Comm, peer: int, least_s: float, limit_s: float) -> float:
    """Exchange messages both ways, larger and larger ones until one takes long.

    The first number of each is the size of the next one; 0 is the end. The least latency is taken
    off: with the usual one of a busy machine, a link would be up to twice as fast as it is.
    """
    here, there = _buffers()
    size, times_s = _FIRST_BYTES, list[float]()
    deadline = time.perf_counter() + limit_s
    while True:
        following = _next_size(size, times_s, is_late=time.perf_counter() >= deadline)
        here.view(np.int64)[0] = following
        started = time.perf_counter()
        _exchange_once(comm, peer, here[:size], there[:size])
        times_s.append(time.perf_counter() - started)
        if following == 0:
            exchange_s = median(times_s[1:])
            return size / max(exchange_s - least_s, exchange_s / 2)
        if following != size:
            size, times_s = following, []


def _next_size(size: int, times_s: list[float], *, is_late: bool) -> int:
    """Choose the size of the exchange after the next, which is the first of its size or not."""
    if not times_s:
        return size
    if is_late or len(times_s) >= _MAX_EXCHANGES:
        return 0
    return size if size == _MAX_BYTES or times_s[-1] >= _LONG_EXCHANGE_S else 4 * size


def _follow_bandwidth(comm: MPI.Comm, peer: int) -> None:
    here, there = _buffers()
    size = _FIRST_BYTES
    while size:
        _exchange_once(comm, peer, here[:size], there[:size])
        size = int(there.view(np.int64)[0])


def _buffers() -> tuple[Bytes, Bytes]:
    return np.zeros(_MAX_BYTES, dtype=np.uint8), np.zeros(_MAX_BYTES, dtype=np.uint8)


def _exchange_once(comm: MPI.Comm, peer: int, here: Bytes, there: Bytes) -> None:
    cuts = range(0, len(here), max(len(here) // _PARTS, 1))
    step = cuts.step
    requests = [comm.Irecv(there[at : at + step], peer, _TAG) for at in cuts]
    requests += [comm.Isend(here[at : at + step], peer, _TAG) for at in cuts]
    started = time.perf_counter()
    while not all(request.Test() for request in requests):
        elapsed_s = time.perf_counter() - started
        if elapsed_s > _SPIN_S:
            time.sleep(min(elapsed_s * _SLEEP_SHARE, POLL_S))
