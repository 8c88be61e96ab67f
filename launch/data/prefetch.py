"""Prefetching for a GPU: each batch is copied while the one before trains."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor

from launch.data.batch import SizedBatch, leaves, map_tensors

T = TypeVar("T")
S = TypeVar("S")
R = TypeVar("R")


def prefetch(batches: Iterator[SizedBatch], device: torch.device) -> Iterator[SizedBatch]:
    """Copy batches to a GPU one ahead, on a stream of their own; leave them alone on a CPU.

    The step itself does the rest, such as finishing pictures.
    """
    if device.type != "cuda":
        return batches
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    return send_ahead(batches, partial(_send, device=device, stream=stream), _receive)


def send_ahead(
    items: Iterator[T], send: Callable[[T], S], receive: Callable[[S], R]
) -> Iterator[R]:
    """Send each item before the one in front of it is received."""
    sent: list[S] = []
    for item in items:
        sent.append(send(item))
        if len(sent) > 1:
            yield receive(sent.pop(0))
    for last in sent:
        yield receive(last)


def _send(
    batch: SizedBatch, *, device: torch.device, stream: torch.cuda.Stream
) -> tuple[SizedBatch, torch.cuda.Event]:
    with torch.cuda.stream(stream):
        share = map_tensors(batch[0], lambda tensor: _copy(tensor, device))
        return (share, batch[1]), stream.record_event()


def _copy(tensor: Tensor, device: torch.device) -> Tensor:
    if tensor.device == device:
        return tensor
    # Only from pinned memory is a copy made while the CPU continues.
    return (tensor if tensor.is_pinned() else tensor.pin_memory()).to(device, non_blocking=True)


def _receive(sent: tuple[SizedBatch, torch.cuda.Event]) -> SizedBatch:
    batch, arrived = sent
    training = torch.cuda.current_stream()
    training.wait_event(arrived)
    # Memory of one stream that another uses must not be handed out again before that is done.
    for leaf in leaves(batch[0]):
        for part in _strided_parts(leaf) if isinstance(leaf, Tensor) else ():
            part.record_stream(training)
    return batch


def _strided_parts(tensor: Tensor) -> tuple[Tensor, ...]:
    """Give the tensors that have the memory of a sparse one; of any other, itself."""
    if tensor.layout is torch.sparse_coo:
        return tensor._indices(), tensor._values()
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return tensor.crow_indices(), tensor.col_indices(), tensor.values()
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return tensor.ccol_indices(), tensor.row_indices(), tensor.values()
    return (tensor,)
