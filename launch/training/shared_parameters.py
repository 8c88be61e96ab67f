"""Where do the replicas of a node keep one model and their gradients? In memory that all see."""

from __future__ import annotations

from itertools import accumulate

import torch
from torch import Tensor, nn

from launch.training.alignment import aligned
from launch.training.group import LocalGroup


class SharedParameters:
    """One copy of a model's trained parameters for all replicas, and a gradient buffer for each.

    Collective: every replica of ``group`` builds it once, over equal models. Afterwards the
    model's parameters lie in the shared memory with worker 0's values.

    Layout of the shared memory, all parameters of one kind after the other, each aligned::

        parameters | gradients of worker 0 | gradients of worker 1 | ... | kinds | losses

    Attributes:
        parameters: The trained parameters in the order of their memory: the model's, but those of
            one dtype together; tied ones once.
        starts: Where each parameter's memory begins, in bytes.
        values: uint8 of shape ``(bytes,)``: the memory of the parameters.
        gradients: uint8 of shape ``(workers, bytes)``: each worker's buffer, laid out as
            ``values``.
        kinds: uint8 of shape ``(workers, parameters)``: what kind of gradient the step gave, 0
            where it gave none.
        losses: float64 of shape ``(workers,)``: each worker's part of the step's loss.
    """

    def __init__(self, model: nn.Module, group: LocalGroup) -> None:
        trained = [p for p in model.parameters() if p.requires_grad]
        self.parameters = sorted(trained, key=lambda p: str(p.dtype))
        sizes = [aligned(p.numel() * p.element_size()) for p in self.parameters]
        *self.starts, total = accumulate(sizes, initial=0)

        blocks = group.share_bytes(total * (1 + group.size)).view(1 + group.size, total)
        self.values, self.gradients = blocks[0], blocks[1:]
        small = group.share_bytes(group.size * (8 + len(self.parameters)))
        self.losses = small[: 8 * group.size].view(torch.float64)
        self.kinds = small[8 * group.size :].view(group.size, len(self.parameters))

        for index, parameter in enumerate(self.parameters):
            shared = self.in_shape(self.values, index)
            if group.local_rank == 0:
                shared.copy_(parameter.detach())
            parameter.data = shared
        group.barrier()

    def flat(self, block: Tensor, index: int) -> Tensor:
        """View a parameter's part of a block as one dimension, in the order of its memory."""
        parameter = self.parameters[index]
        start = self.starts[index]
        end = start + parameter.numel() * parameter.element_size()
        return block[start:end].view(parameter.dtype)

    def in_shape(self, block: Tensor, index: int) -> Tensor:
        """View a parameter's part of a block in its shape, and in its strides if dense."""
        parameter, memory = self.parameters[index], self.flat(block, index)
        if is_dense(parameter):
            return memory.as_strided(parameter.size(), parameter.stride())
        return memory.view(parameter.size())


def flat_view(tensor: Tensor) -> Tensor:
    """Give the elements in the order of their memory, as `SharedParameters.flat` does."""
    if is_dense(tensor):
        return tensor.detach().as_strided((tensor.numel(),), (1,))
    return tensor.detach().reshape(-1)


def is_dense(tensor: Tensor) -> bool:
    """Whether the elements fill their memory without gaps or overlaps, in any order."""
    expected = 1
    dimensions = zip(tensor.stride(), tensor.size(), strict=True)
    for stride, size in sorted((s, n) for s, n in dimensions if n > 1):
        if stride != expected:
            return False
        expected *= size
    return True
