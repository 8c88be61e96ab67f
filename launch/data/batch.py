"""Batches: cut into parts, counted, moved to a device, described."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from launch.data.raw_pictures import RawPictures
from launch.data.split import BatchSize
from launch.errors import UseCaseError

Batch = Any
"""Tensors nested in dicts, lists and tuples; the first dimension of each counts samples.

In place of a tensor there may be `RawPictures`, which `move_batch` turns into one.
"""

SizedBatch = tuple[Batch | None, BatchSize]
"""A share of a batch, ``None`` where it is empty, and the size of the whole batch."""


def split_batch(batch: Batch, parts: int, size: int | None = None) -> list[Batch]:
    """Cut a batch into parts of the same nesting, without copying.

    Tensors are cut along their first dimension; so are lists of texts, numbers and the like, one
    for each sample. Tensors without dimensions, and all else, go to every part.

    Args:
        batch: What is cut.
        parts: Their number; their sizes differ by one sample at most.
        size: Samples in the batch; by default, see `num_samples`.

    Raises:
        UseCaseError: A tensor's first dimension does not count samples.
    """
    if parts == 1:
        return [batch]
    samples = num_samples(batch) if size is None else size
    rows = [_cut(leaf, parts, samples, batch) for leaf in _leaves(batch, samples)]

    def part(number: int) -> Batch:
        cut = iter(rows)
        return _map(batch, lambda _: next(cut)[number], samples)

    return [part(number) for number in range(parts)]


def num_samples(batch: Batch) -> int:
    """Count the samples: the size of the first tensor found.

    Raises:
        UseCaseError: There is no tensor.
    """
    for leaf in _leaves(batch):
        if isinstance(leaf, RawPictures):
            return len(leaf)
        if isinstance(leaf, Tensor) and leaf.dim():
            return leaf.size(0)
    raise UseCaseError(
        f"a batch is {describe_batch(batch)}, without a tensor that has a dimension: return "
        "tensors from collate(samples), or the number of samples from size(batch)"
    )


def move_batch(batch: Batch, device: torch.device, memory_format: torch.memory_format) -> Batch:
    """Copy nested tensors to a device; pictures (four dimensions) to a memory format too.

    `RawPictures` are finished there.
    """

    def move(leaf: Any) -> Any:
        if isinstance(leaf, RawPictures):
            return leaf.finished(device, memory_format)
        if isinstance(leaf, Tensor):
            format_ = memory_format if leaf.dim() == 4 else torch.preserve_format
            return leaf.to(device, memory_format=format_, non_blocking=True)
        return leaf

    return _map(batch, move)


def map_tensors(batch: Batch, change: Callable[[Tensor], Tensor]) -> Batch:
    """Map every tensor of a batch; nesting and all else stay."""

    def changed(leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            return change(leaf)
        if isinstance(leaf, RawPictures):
            drawn = None if leaf.drawn is None else change(leaf.drawn)
            return replace(leaf, pixels=change(leaf.pixels), drawn=drawn)
        return leaf

    return _map(batch, changed)


def leaves(batch: Batch) -> Iterator[Any]:
    """Give what a batch nests, tensors and others, in order."""
    for leaf in _leaves(batch):
        if isinstance(leaf, RawPictures):
            yield leaf.pixels
            yield leaf.drawn
        else:
            yield leaf


def repeat_samples(batch: Batch, size: int) -> Batch:
    """Make a batch of any size by repeating samples."""

    def repeat(tensor: Tensor) -> Tensor:
        if not tensor.dim():
            return tensor
        indices = torch.arange(size, device=tensor.device) % tensor.size(0)
        is_last = tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last)
        spec = torch.channels_last if is_last else torch.contiguous_format
        return tensor.index_select(0, indices).contiguous(memory_format=spec)

    return map_tensors(batch, repeat)


def describe_batch(batch: Batch) -> str:
    """Describe a batch for people: types and shapes, such as ``(float32 8x3x224x224, int64 8)``."""
    if isinstance(batch, Tensor):
        shape = "x".join(map(str, batch.shape)) or "scalar"
        return f"{str(batch.dtype).removeprefix('torch.')} {shape}"
    if isinstance(batch, RawPictures):
        return f"pictures {describe_batch(batch.pixels)}"
    if isinstance(batch, Mapping):
        return f"{{{', '.join(f'{key}: {describe_batch(batch[key])}' for key in batch)}}}"
    if isinstance(batch, (tuple, list)):
        if len(batch) > 1 and not any(map(_is_nested, batch)):
            return f"{len(batch)} {type(batch[0]).__name__}"
        return f"({', '.join(map(describe_batch, batch))})"
    return type(batch).__name__


def _is_nested(value: Any) -> bool:
    return isinstance(value, (Tensor, RawPictures, Mapping, tuple, list))


def _is_column(value: Any, size: int | None) -> bool:
    """Whether a list holds one thing, no tensor, for each of ``size`` samples."""
    return len(value) == size and not any(map(_is_nested, value))


def _cut(leaf: Any, parts: int, size: int, batch: Batch) -> list[Any]:
    if isinstance(leaf, RawPictures):
        return list(leaf.split(parts))
    if isinstance(leaf, (tuple, list)):
        bounds = torch.arange(size).tensor_split(parts)
        return [type(leaf)(leaf[int(index)] for index in some) for some in bounds]
    if not isinstance(leaf, Tensor) or not leaf.dim():
        return [leaf] * parts
    if leaf.size(0) != size:
        raise UseCaseError(
            f"a batch of {size} samples is {describe_batch(batch)}, which cannot be cut into "
            f"shares: return tensors whose first dimension is {size} from collate(samples)"
        )
    return list(leaf.tensor_split(parts))


def _leaves(batch: Batch, size: int | None = None) -> Iterator[Any]:
    """Give the leaves in order; where ``size`` is known, columns of so many count as leaves."""
    if isinstance(batch, Mapping):
        for key in batch:
            yield from _leaves(batch[key], size)
    elif isinstance(batch, (tuple, list)) and not _is_column(batch, size):
        for value in batch:
            yield from _leaves(value, size)
    else:
        yield batch


def _map(batch: Batch, change: Callable[[Any], Any], size: int | None = None) -> Batch:
    """Rebuild the nesting around changed leaves, see `_leaves`."""
    if isinstance(batch, Mapping):
        changed = {key: _map(batch[key], change, size) for key in batch}
        if type(batch) is dict:
            return changed
        same: Any = copy(batch)
        same.update(changed)
        return same
    if isinstance(batch, (tuple, list)) and not _is_column(batch, size):
        values = [_map(value, change, size) for value in batch]
        return type(batch)(*values) if hasattr(batch, "_fields") else type(batch)(values)
    return change(batch)
