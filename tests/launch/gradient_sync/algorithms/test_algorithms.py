"""Every algorithm gives every rank the same sum, as often over the links as it says."""

from __future__ import annotations

from collections import defaultdict, deque

import numpy as np
import pytest

from launch.gradient_sync.algorithms import algorithm_names, load_algorithm
from launch.gradient_sync.algorithms._base import Exchange, Transfer

SIZES = [2, 3, 4, 5, 8, 9]


def drawn(rank: int, size: int, name: str) -> str:
    """One exchange a word: ``+`` parts, ``=`` sums, what goes to whom (``>``) and comes (``<``)."""
    return " ".join(map(_word, load_algorithm(name).exchanges(rank, size)))


def _word(exchange: Exchange) -> str:
    def peers(sign: str, transfers: list[Transfer]) -> str:
        return sign + "".join(str(each.peer) for each in transfers) if transfers else ""

    kind = "=" if exchange.is_total else "+"
    return kind + peers(">", list(exchange.sends)) + peers("<", list(exchange.receives))


def test_exchanges_of_four_ranks():
    assert drawn(1, 4, "ring") == "+>2<0 +>2<0 +>2<0 =>2<0 =>2<0 =>2<0"
    assert [drawn(rank, 4, "tree") for rank in range(4)] == [
        "+<1 +<2 =>21",
        "+>0 =<0",
        "+<3 +>0 =<0 =>3",
        "+>2 =<2",
    ]
    assert [drawn(rank, 4, "server") for rank in range(3)] == ["+<123 =>123", "+>0 =<0", "+>0 =<0"]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", algorithm_names())
def test_all_ranks_end_with_the_sum_and_write_each_segment_once(name, size):
    algorithm = load_algorithm(name)
    segments = algorithm.segments(size)
    values = np.array([[10.0**rank] * segments for rank in range(size)])
    written = np.zeros((size, segments), int)
    waiting = {rank: deque(algorithm.exchanges(rank, size)) for rank in range(size)}
    links: defaultdict[tuple[int, int, bool], deque[tuple[int, float]]] = defaultdict(deque)
    totals: set[tuple[int, int]] = set()
    sent: set[int] = set()
    while any(waiting.values()):
        has_progressed = False
        for rank, exchanges in waiting.items():
            if not exchanges:
                continue
            step = exchanges[0]
            if rank not in sent:
                sent.add(rank)
                has_progressed = True
                for each in step.sends:
                    if not step.is_total or (rank, each.segment) not in totals:
                        written[rank, each.segment] += 1
                        if step.is_total:
                            totals.add((rank, each.segment))
                    link = links[rank, each.peer, step.is_total]
                    link.append((each.segment, values[rank, each.segment]))
            sources = [links[each.peer, rank, step.is_total] for each in step.receives]
            if all(sources):
                for each, source in zip(step.receives, sources, strict=True):
                    segment, value = source.popleft()
                    assert segment == each.segment
                    if step.is_total:
                        values[rank, segment] = value
                        totals.add((rank, segment))
                    else:
                        values[rank, segment] += value
                exchanges.popleft()
                sent.discard(rank)
                has_progressed = True
        assert has_progressed, "ranks wait for one another"
    assert np.array_equal(values, np.full_like(values, (10.0**size - 1) / 9))
    assert np.array_equal(written, np.ones_like(written))


@pytest.mark.parametrize("size", [*SIZES, 16, 33])
@pytest.mark.parametrize("name", algorithm_names())
def test_the_busiest_link_carries_what_is_predicted(name, size):
    algorithm = load_algorithm(name)
    carried = [
        sum(max(len(each.sends), len(each.receives)) for each in algorithm.exchanges(rank, size))
        for rank in range(size)
    ]
    assert max(carried) / algorithm.segments(size) == pytest.approx(algorithm.load(size))
