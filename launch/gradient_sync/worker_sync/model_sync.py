"""Synchronisation of one model over all nodes: compared, and overwritten by node 0's.

All nodes make the same updates of the same gradients, and still drift apart by a rounding here and
there where their processors or their plans differ. Buffers, such as the running statistics of
BatchNorm, each node has from its own samples.
"""

from __future__ import annotations

import zlib

import torch
from torch import Tensor, nn

from launch.gradient_sync.node_channel.requests import RequestClient


class ModelSync:
    """A worker's part in giving all nodes one model: that of the first worker is its node's."""

    def __init__(self, rank: RequestClient, *, is_source: bool, local_rank: int) -> None:
        self._rank = rank
        self._is_source = is_source
        self._is_first = local_rank == 0

    @torch.no_grad()
    def sync_model(self, model: nn.Module) -> None:
        """Give every node the model of node 0. Collective over the workers of all nodes."""
        tensors = [t for t in (*model.parameters(), *model.buffers()) if t.numel()]
        if self._rank.is_equal(_digest(tensors) if self._is_first else 0):
            return
        for tensor in tensors:
            self._broadcast(tensor)

    def _broadcast(self, tensor: Tensor) -> None:
        content = _content(tensor)
        self._rank.broadcast_array(content.numpy(), is_source=self._is_source)
        if not self._is_source:
            tensor.copy_(content.view(tensor.dtype).view(tensor.shape))


def _digest(tensors: list[Tensor]) -> int:
    digest = 0
    for content in map(_content, tensors):
        digest = zlib.crc32(content.numpy().data, digest)
    return digest


def _content(tensor: Tensor) -> Tensor:
    """Give a copy of the bytes of a tensor in the order of its indices, on the CPU."""
    flat = torch.empty(tensor.numel(), dtype=tensor.dtype)
    flat.view(tensor.shape).copy_(tensor.detach())
    return flat.view(torch.uint8)
