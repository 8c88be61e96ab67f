"""Chunks: what a worker sums and updates at a time, as much as its core's cache holds."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor, nn

from launch.local_group.alignment import ALIGNMENT_BYTES
from launch.local_group.shared_parameters import SharedParameters

_UPDATE_GROUP_BYTES = 1 << 18
"""Size up to which parameters are merged: each call of an optimizer costs 15-30 us."""

_MIN_PART_BYTES = 1 << 16
"""Smallest part of a worker: less is updated by one worker alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A part of one parameter that one worker updates."""

    index: int
    """Of the parameter."""
    start: int
    """First element, in the order of the parameter's memory."""
    owned: Tensor
    """Tensor that the optimizer updates: one-dimensional, or the parameter itself."""
    gradient: Tensor
    """Memory of its summed gradient, in the shape of ``owned``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SumSpan:
    """Memory without gaps, summed at once. One-dimensional tensors of one size and dtype."""

    own: Tensor
    """The gradient of the worker that sums."""
    others: Sequence[Tensor]
    """The gradients of the other workers."""
    total: Tensor
    """Memory of the sum; may be ``own``."""

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
    """Spans that are summed, and pieces that one call of the optimizer then updates."""

    spans: Sequence[SumSpan]
    pieces: Sequence[Piece]

    def drop_gradients(self) -> None:
        """Take the gradients from the pieces: their memory is another chunk's next."""
        for piece in self.pieces:
            piece.owned.grad = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateGroup:
    """Neighbouring parameters that are updated together."""

    parameters: range
    """Their numbers."""
    chunks: Sequence[Chunk]
    """One worker's part of them; may be empty."""


def cut_evenly(
    shared: SharedParameters, rank: int, chunk_bytes: int, *, is_summed: bool = False
) -> Iterator[Chunk]:
    """Cut all memory into equal parts, and one worker's part into chunks.

    Cuts also inside tensors: one can be most of a model. Small ones share a chunk.

    Args:
        shared: Memory to cut, into as many parts as it has gradient buffers.
        rank: Worker of the part.
        chunk_bytes: Largest size of a chunk's parameters, a multiple of `ALIGNMENT_BYTES`.
        is_summed: Whether the first buffer will hold the sum already.
    """
    workers, total = shared.gradients.shape
    low, high = _share(0, total, rank, workers)
    yield from _cut(shared, rank, low, high, chunk_bytes, is_summed=is_summed)


def cut_by_update_group(shared: SharedParameters, rank: int, chunk_bytes: int) -> list[UpdateGroup]:
    """Cut the memory into groups that are updated one by one, and each into the workers' parts.

    So the parameters of a layer can be updated when they are summed, before the others are.

    Args:
        shared: Memory to cut. Its first buffer will hold the sums.
        rank: Worker of the parts.
        chunk_bytes: Largest size of a chunk's parameters, a multiple of `ALIGNMENT_BYTES`.
    """
    return [
        UpdateGroup(
            parameters=parameters,
            chunks=list(_cut(shared, rank, low, high, chunk_bytes, is_summed=True)),
        )
        for number, parameters in enumerate(_group_neighbours(shared))
        for low, high in [_part_of(shared, parameters, number, rank)]
    ]


def _group_neighbours(shared: SharedParameters) -> Iterator[range]:
    """List neighbours that are updated together: small ones of one type, or a large one."""
    first, filled = 0, 0
    for index, parameter in enumerate(shared.parameters):
        is_other = index > first and parameter.dtype != shared.parameters[first].dtype
        if filled >= _UPDATE_GROUP_BYTES or is_other:
            yield range(first, index)
            first, filled = index, 0
        filled += parameter.nbytes
    if shared.parameters:
        yield range(first, len(shared.parameters))


def _part_of(
    shared: SharedParameters, parameters: range, number: int, rank: int
) -> tuple[int, int]:
    """Return the part of a group that a worker updates, in bytes; small groups take turns."""
    workers, total = shared.gradients.shape
    begin = shared.starts[parameters.start]
    end = shared.starts[parameters.stop] if parameters.stop < len(shared.starts) else total
    owners = max(1, min(workers, (end - begin) // _MIN_PART_BYTES))
    part = (rank - number) % workers
    if part >= owners:
        return begin, begin
    return _share(begin, end, part, owners)


def _share(begin: int, end: int, part: int, parts: int) -> tuple[int, int]:
    """Return one of equal parts of some memory, which begins and ends with a cache line."""
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
        buffers = _list_buffers(shared, rank, is_summed=is_summed)
        own, *others = (buffer[start:stop].view(dtype) for buffer in buffers)
        out = own if is_summed else total[: stop - start].view(dtype)
        span = SumSpan(own=own, others=others, total=out)
        last = bisect_right(shared.starts, stop - 1)
        pieces = (_piece(shared, index, start, span) for index in range(first, last))
        yield Chunk(spans=[span], pieces=[piece for piece in pieces if piece.owned.numel()])


def assign_whole(
    shared: SharedParameters, rank: int, *, is_summed: bool = False, is_alone: bool = False
) -> Chunk:
    """Return one worker's share of whole parameters, summed in its own gradient buffer.

    The largest parameters are assigned first, each to the worker that has least so far.

    Args:
        shared: Memory to assign.
        rank: Worker of the share.
        is_summed: Whether the first buffer will hold the sum already.
        is_alone: Whether the first worker gets all of them.
    """
    loads = [0] * len(shared.gradients)
    spans, pieces = [], []
    sizes = [p.nbytes for p in shared.parameters]
    order = range(len(sizes)) if is_alone else sorted(range(len(sizes)), key=lambda i: -sizes[i])
    for index in order:
        lightest = 0 if is_alone else loads.index(min(loads))
        loads[lightest] += sizes[index]
        if lightest != rank:
            continue
        buffers = _list_buffers(shared, rank, is_summed=is_summed)
        own, *others = (shared.flat(buffer, index) for buffer in buffers)
        spans.append(SumSpan(own=own, others=others, total=own))
        gradient = shared.in_shape(buffers[0], index)
        owned = shared.parameters[index]
        pieces.append(Piece(index=index, start=0, owned=owned, gradient=gradient))
    return Chunk(spans=spans, pieces=pieces)


def merge_chunks(chunks: Sequence[Chunk], shared: SharedParameters, rank: int) -> Chunk:
    """Merge a worker's chunks into one, summed in the gradient buffer of ``rank``."""
    spans = [replace(span, total=span.own) for chunk in chunks for span in chunk.spans]
    pieces = []
    for chunk in chunks:
        for piece in chunk.pieces:
            flat = shared.flat(shared.gradients[rank], piece.index)
            part = flat[piece.start : piece.start + piece.owned.numel()]
            pieces.append(replace(piece, gradient=part))
    return Chunk(spans=spans, pieces=pieces)


def _list_buffers(shared: SharedParameters, rank: int, *, is_summed: bool) -> list[Tensor]:
    """List the buffers to be added, so that the sum may be left in the first one."""
    buffers = list(shared.gradients.unbind())
    if is_summed:
        return buffers[:1]
    return [buffers.pop(rank), *buffers]


def _bounds(shared: SharedParameters, low: int, high: int, chunk_bytes: int) -> list[int]:
    """List where chunks begin and the last one ends, in bytes."""
    dtypes = [parameter.dtype for parameter in shared.parameters]
    changes = (
        start
        for start, (before, after) in zip(shared.starts[1:], pairwise(dtypes), strict=True)
        if before != after and low < start < high
    )
    return sorted({*range(low, high, chunk_bytes), *changes, high})


def _piece(shared: SharedParameters, index: int, chunk_start: int, span: SumSpan) -> Piece:
    """Return the piece of one parameter in a chunk; it may be empty."""
    flat = shared.flat(shared.values, index)
    # Padding is between the parameters: positions count from the start of the chunk.
    offset = (shared.starts[index] - chunk_start) // flat.element_size()
    start, stop = max(0, -offset), min(flat.numel(), len(span.own) - offset)
    return Piece(
        index=index,
        start=start,
        owned=nn.Parameter(flat[start:stop]),
        gradient=span.total[start + offset : stop + offset],
    )
