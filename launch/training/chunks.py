"""What does a worker sum and update at a time? As much as stays in the cache of its core."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from launch.training.alignment import ALIGNMENT_BYTES
from launch.training.shared_parameters import SharedParameters

_STRETCH_BYTES = 1 << 18
"""Parameters are put together up to this size: each call of an optimizer costs 15-30 us."""

_LEAST_PART_BYTES = 1 << 16
"""Less than that is updated by one worker alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A part of one parameter that one worker updates."""

    index: int
    """Of the parameter."""
    start: int
    """Its first element, in the order of the parameter's memory."""
    owned: Tensor
    """What the optimizer updates: one-dimensional, or the parameter itself."""
    gradient: Tensor
    """Memory of its summed gradient, in the shape of ``owned``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Memory without a gap, summed at once. One-dimensional tensors of one size and dtype."""

    own: Tensor
    """The gradient of the worker that sums."""
    others: Sequence[Tensor]
    """Those of the other workers."""
    total: Tensor
    """Where the sum is left; may be ``own``."""

    def sum_into(self, out: Tensor) -> None:
        """Sum the gradients of all workers."""
        if self.others:
            torch.add(self.own, self.others[0], out=out)
        elif out is not self.own:
            out.copy_(self.own)
        for other in self.others[1:]:
            out.add_(other)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """What is summed and then updated by one call of the optimizer."""

    runs: Sequence[Run]
    pieces: Sequence[Piece]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Neighbouring parameters that are updated together."""

    parameters: range
    """Their numbers."""
    chunks: Sequence[Chunk]
    """What one worker updates of them; may be nothing."""


def cut_anywhere(
    shared: SharedParameters, rank: int, chunk_bytes: int, *, is_summed: bool = False
) -> Iterator[Chunk]:
    """Cut all memory into equal parts, and one worker's part into chunks.

    Inside tensors too: one can be most of a model. Small ones share a chunk.

    Args:
        shared: What is cut, into as many parts as it has gradient buffers.
        rank: Whose part.
        chunk_bytes: Largest size of a chunk's parameters, a multiple of `ALIGNMENT_BYTES`.
        is_summed: Whether the first buffer will hold the sum already.
    """
    workers, total = shared.gradients.shape
    low, high = _share(0, total, rank, workers)
    yield from _cut(shared, rank, low, high, chunk_bytes, is_summed=is_summed)


def cut_each(shared: SharedParameters, rank: int, chunk_bytes: int) -> list[Stretch]:
    """Cut the memory into stretches that are updated one by one, and each among the workers.

    So that the parameters of a layer can be updated when they are summed, whatever the others are.

    Args:
        shared: What is cut. Its first buffer will hold the sums.
        rank: Whose part of each stretch.
        chunk_bytes: Largest size of a chunk's parameters, a multiple of `ALIGNMENT_BYTES`.
    """
    return [
        Stretch(
            parameters=parameters,
            chunks=list(_cut(shared, rank, low, high, chunk_bytes, is_summed=True)),
        )
        for number, parameters in enumerate(_stretches(shared))
        for low, high in [_part_of(shared, parameters, number, rank)]
    ]


def _stretches(shared: SharedParameters) -> Iterator[range]:
    """Give neighbours that are updated together: small ones of one type, or one that is large."""
    first, filled = 0, 0
    for index, parameter in enumerate(shared.parameters):
        is_other = index > first and parameter.dtype != shared.parameters[first].dtype
        if filled >= _STRETCH_BYTES or is_other:
            yield range(first, index)
            first, filled = index, 0
        filled += parameter.numel() * parameter.element_size()
    if shared.parameters:
        yield range(first, len(shared.parameters))


def _part_of(
    shared: SharedParameters, parameters: range, number: int, rank: int
) -> tuple[int, int]:
    """Give the part of a stretch that a worker updates, in bytes; small ones go round."""
    workers, total = shared.gradients.shape
    begin = shared.starts[parameters.start]
    end = shared.starts[parameters.stop] if parameters.stop < len(shared.starts) else total
    owners = max(1, min(workers, (end - begin) // _LEAST_PART_BYTES))
    part = (rank - number) % workers
    if part >= owners:
        return begin, begin
    return _share(begin, end, part, owners)


def _share(begin: int, end: int, part: int, parts: int) -> tuple[int, int]:
    """Give one of equal parts of some memory, which begins and ends with a cache line."""
    lines = (end - begin) // ALIGNMENT_BYTES
    low, high = (begin + lines * of // parts * ALIGNMENT_BYTES for of in (part, part + 1))
    return low, high


def _cut(
    shared: SharedParameters, rank: int, low: int, high: int, chunk_bytes: int, *, is_summed: bool
) -> Iterator[Chunk]:
    """Cut some of the memory into chunks, from one byte up to another."""
    total = torch.empty(0 if is_summed else chunk_bytes, dtype=torch.uint8)
    for start, stop in pairwise(_bounds(shared, low, high, chunk_bytes)):
        first = bisect_right(shared.starts, start) - 1
        dtype = shared.parameters[first].dtype
        blocks = _blocks(shared, rank, is_summed=is_summed)
        own, *others = (block[start:stop].view(dtype) for block in blocks)
        room = own if is_summed else total[: stop - start].view(dtype)
        run = Run(own=own, others=others, total=room)
        last = bisect_right(shared.starts, stop - 1)
        pieces = (_piece(shared, index, start, run) for index in range(first, last))
        yield Chunk(runs=[run], pieces=[piece for piece in pieces if piece.owned.numel()])


def cut_between(shared: SharedParameters, rank: int, *, is_summed: bool = False) -> Chunk:
    """Give one worker's share of whole parameters, summed in its own gradient buffer.

    The largest go first, each to the worker that has least so far.

    Args:
        shared: What is cut.
        rank: Whose share.
        is_summed: Whether the first buffer will hold the sum already.
    """
    loads = [0] * len(shared.gradients)
    runs, pieces = [], []
    sizes = [p.numel() * p.element_size() for p in shared.parameters]
    for index in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        lightest = loads.index(min(loads))
        loads[lightest] += sizes[index]
        if lightest != rank:
            continue
        blocks = _blocks(shared, rank, is_summed=is_summed)
        own, *others = (shared.flat(block, index) for block in blocks)
        runs.append(Run(own=own, others=others, total=own))
        gradient = shared.in_shape(blocks[0], index)
        owned = shared.parameters[index]
        pieces.append(Piece(index=index, start=0, owned=owned, gradient=gradient))
    return Chunk(runs=runs, pieces=pieces)


def merged(chunks: Sequence[Chunk], shared: SharedParameters, rank: int) -> Chunk:
    """Make one chunk of those of a worker, summed in the gradient buffer of ``rank``."""
    return Chunk(
        runs=[
            Run(own=run.own, others=run.others, total=run.own)
            for chunk in chunks
            for run in chunk.runs
        ],
        pieces=[
            Piece(
                index=piece.index,
                start=piece.start,
                owned=piece.owned,
                gradient=_part(shared.flat(shared.gradients[rank], piece.index), piece),
            )
            for chunk in chunks
            for piece in chunk.pieces
        ],
    )


def _part(flat: Tensor, piece: Piece) -> Tensor:
    return flat[piece.start : piece.start + piece.owned.numel()]


def _blocks(shared: SharedParameters, rank: int, *, is_summed: bool) -> list[Tensor]:
    """List the buffers to be added, so that the sum may be left in the first one."""
    blocks = list(shared.gradients.unbind())
    if is_summed:
        return blocks[:1]
    return [blocks.pop(rank), *blocks]


def _bounds(shared: SharedParameters, low: int, high: int, chunk_bytes: int) -> list[int]:
    """List where chunks begin and the last one ends, in bytes."""
    dtypes = [parameter.dtype for parameter in shared.parameters]
    changes = (
        start
        for start, (before, after) in zip(shared.starts[1:], pairwise(dtypes), strict=True)
        if before != after and low < start < high
    )
    return sorted({*range(low, high, chunk_bytes), *changes, high})


def _piece(shared: SharedParameters, index: int, chunk_start: int, run: Run) -> Piece:
    """Give what a chunk holds of one parameter; nothing of one without elements."""
    flat = shared.flat(shared.values, index)
    # Between the parameters lies what aligns them: positions count from the chunk's begin.
    offset = (shared.starts[index] - chunk_start) // flat.element_size()
    start, stop = max(0, -offset), min(flat.numel(), len(run.own) - offset)
    return Piece(
        index=index,
        start=start,
        owned=nn.Parameter(flat[start:stop]),
        gradient=run.total[start + offset : stop + offset],
    )
