"""Batches: cut into parts, counted, moved to a device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from launch.data.raw_pictures import RawPictures

Batch = tuple[Any, Any]
"""Inputs and targets; the first dimension of each tensor counts samples.

In place of a tensor there may be `RawPictures`, which `move_batch` turns into one.
"""


def split_batch(batch: Any, parts: int) -> list[Any]:
    """Cut nested tensors along their first dimension, without copying.

    Returns:
        ``parts`` batches of the same nesting whose sizes differ by one sample at most.
    """
    if parts == 1:
        return [batch]
    if isinstance(batch, Tensor):
        return list(batch.tensor_split(parts))
    if isinstance(batch, RawPictures):
        return list(batch.split(parts))
    if isinstance(batch, dict):
        columns = {key: split_batch(value, parts) for key, value in batch.items()}
        return [{key: column[i] for key, column in columns.items()} for i in range(parts)]
    if isinstance(batch, (tuple, list)):
        rows = zip(*(split_batch(value, parts) for value in batch), strict=True)
        return [type(batch)(row) for row in rows]
    return [batch] * parts


def num_samples(batch: Any) -> int:
    """Count the samples of nested tensors: the size of the first tensor found."""
    if isinstance(batch, Tensor):
        return batch.size(0)
    if isinstance(batch, RawPictures):
        return len(batch)
    values = batch.values() if isinstance(batch, dict) else batch
    return num_samples(next(iter(values)))


def move_batch(batch: Any, device: torch.device, memory_format: torch.memory_format) -> Any:
    """Copy nested tensors to a device; pictures (four dimensions) to a memory format too.

    `RawPictures` are finished there.
    """
    if isinstance(batch, RawPictures):
        return batch.finished(device, memory_format)
    if isinstance(batch, Tensor):
        format_ = memory_format if batch.dim() == 4 else torch.preserve_format
        return batch.to(device, memory_format=format_, non_blocking=True)
    if isinstance(batch, dict):
        return {key: move_batch(value, device, memory_format) for key, value in batch.items()}
    if isinstance(batch, (tuple, list)):
        return type(batch)(move_batch(value, device, memory_format) for value in batch)
    return batch


def map_tensors(batch: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Map every tensor of a batch; nesting and all else stay."""
    if isinstance(batch, Tensor):
        return change(batch)
    if isinstance(batch, RawPictures):
        drawn = None if batch.drawn is None else change(batch.drawn)
        return replace(batch, pixels=change(batch.pixels), drawn=drawn)
    if isinstance(batch, dict):
        return {key: map_tensors(value, change) for key, value in batch.items()}
    if isinstance(batch, (tuple, list)):
        return type(batch)(map_tensors(value, change) for value in batch)
    return batch


def leaves(batch: Any) -> Iterator[Any]:
    """Give what a batch nests, tensors and others, in order."""
    if isinstance(batch, RawPictures):
        yield batch.pixels
        yield batch.drawn
    elif isinstance(batch, (dict, tuple, list)):
        for value in batch.values() if isinstance(batch, dict) else batch:
            yield from leaves(value)
    else:
        yield batch
