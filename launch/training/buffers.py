"""What does a model keep beside its parameters? Buffers, of which one worker's are the model's."""

from __future__ import annotations

import torch
from torch import nn

from launch.training.group import LocalGroup


class SharedBuffers:
    """Memory by which the replicas of a node take over worker 0's buffers.

    Collective: every replica of ``group`` builds it once, over equal models. During training each
    replica keeps its own, from its own share of the batch, as torch's DistributedDataParallel does
    when it is not told to broadcast them.
    """

    def __init__(self, model: nn.Module, group: LocalGroup) -> None:
        self._buffers = [buffer for buffer in model.buffers() if buffer.numel() > 0]
        self._group = group
        sizes = [buffer.numel() * buffer.element_size() for buffer in self._buffers]
        self._parts = list(torch.split(group.share_bytes(sum(sizes)), sizes)) if sizes else []

    @torch.no_grad()
    def copy_from_first(self) -> None:
        """Give every replica the buffers of the first. Collective."""
        if not self._parts:
            return
        if self._group.local_rank == 0:
            for buffer, part in zip(self._buffers, self._parts, strict=True):
                part.copy_(buffer.contiguous().view(-1).view(torch.uint8))
        self._group.barrier()
        if self._group.local_rank > 0:
            for buffer, part in zip(self._buffers, self._parts, strict=True):
                # A copy first: a part need not begin where a float may.
                buffer.copy_(part.clone().view(buffer.dtype).view(buffer.shape))
        self._group.barrier()
