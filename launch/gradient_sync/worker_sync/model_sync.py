"""Synchronisation of one model over all nodes: compared, and overwritten by node 0's.

All nodes make the same updates of the same gradients, and still drift apart by a rounding here and
there where their processors or their plans differ. Buffers, such as the running statistics of
BatchNorm, each node has from its own samples.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from launch.gradient_sync.node_channel.requests import RequestClient


class ModelSync:
    """A worker's part in giving all nodes one model: that of the first worker is its node's.

    A step may put another tensor in a buffer's place; where one has another size than at first, as
    a cache that grows with the longest sample, each node keeps its own.
    """

    def __init__(self, rank: RequestClient, *, is_source: bool, local_rank: int) -> None:
        self._rank = rank
        self._is_source = is_source
        self._is_first = local_rank == 0
        self._sizes: dict[str, int] = {}
        """Bytes of each tensor before the first step, when all nodes have the same."""

    @torch.no_grad()
    def sync_model(self, model: nn.Module) -> None:
        """Give every node the model of node 0. Collective over the workers of all nodes."""
        named = (*model.named_parameters(), *model.named_buffers())
        self._sizes = self._sizes or {name: t.nbytes for name, t in named if t.numel()}
        tensors = {name: t for name, t in named if self._sizes.get(name) == t.nbytes}
        if self._rank.is_equal(_digest(tensors.values()) if self._is_first else 0):
            return
        for name, num_bytes in self._sizes.items():
            self._broadcast(tensors.get(name), num_bytes)

    def _broadcast(self, tensor: Tensor | None, num_bytes: int) -> None:
        content = torch.zeros(num_bytes + 1, dtype=torch.uint8)
        if tensor is not None:
            content[:-1] = _content(tensor)
            content[-1] = 1  # or node 0 has none of this size
        self._rank.broadcast_array(content.numpy(), is_source=self._is_source)
        if tensor is not None and content[-1] and not self._is_source:
            tensor.copy_(content[:-1].view(tensor.dtype).view(tensor.shape))


def _digest(tensors: Iterable[Tensor]) -> int:
    digest = 0
    for content in map(_content, tensors):
        digest = zlib.crc32(content.numpy().data, digest)
    return digest


def _content(tensor: Tensor) -> Tensor:
    """Give a copy of the bytes of a tensor in the order of its indices, on the CPU."""
    flat = torch.empty(tensor.numel(), dtype=tensor.dtype)
    flat.view(tensor.shape).copy_(tensor.detach())
    return flat.view(torch.uint8)
