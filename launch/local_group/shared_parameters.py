"""Parameters, gradients and buffers in memory that the replicas of a node share."""

from __future__ import annotations

from itertools import accumulate

import torch
from torch import Tensor, nn

from launch.local_group.alignment import aligned
from launch.local_group.group import LocalGroup


class SharedParameters:
    """One copy of a model's trained parameters for all replicas, and a gradient buffer for each.

    Collective: every replica of ``group`` builds it once, over equal models. Afterwards the
    model's parameters lie in the shared memory with worker 0's values, each as a memory of its own
    to PyTorch.

    Layout of the shared memory, all parameters of one kind after the other, each aligned::

        parameters | gradients of worker 0 | gradients of worker 1 | ... | kinds | sums

    Attributes:
        parameters: The trained parameters in the order of their memory: the model's, but those of
            one dtype together; tied ones once.
        starts: Offset of each parameter, in bytes.
        values: uint8 of shape ``(bytes,)``: the memory of the parameters.
        gradients: uint8 of shape ``(workers, bytes)``: each worker's buffer, in the layout
            of ``values``.
        kinds: uint8 of shape ``(workers, parameters)``: kind of gradient that the step gave, 0
            for none.
        sums: float64 of shape ``(workers, 2)``: each worker's part of the step's loss, and the
            weight of that part.
    """

    def __init__(self, model: nn.Module, group: LocalGroup) -> None:
        trained = [p for p in model.parameters() if p.requires_grad]
        self.parameters = sorted(trained, key=lambda p: str(p.dtype))
        sizes = [aligned(p.nbytes) for p in self.parameters]
        *self.starts, total = accumulate(sizes, initial=0)

        blocks = group.share_bytes(total * (1 + group.size)).view(1 + group.size, total)
        self.values, self.gradients = blocks[0], blocks[1:]
        small = group.share_bytes(group.size * (16 + len(self.parameters)))
        self.sums = small[: 16 * group.size].view(torch.float64).view(group.size, 2)
        self.kinds = small[16 * group.size :].view(group.size, len(self.parameters))

        for index, parameter in enumerate(self.parameters):
            shared = self.alone(index)
            if group.local_rank == 0:
                shared.copy_(parameter.detach())
            parameter.data = shared
        group.barrier()

    def flat(self, buffer: Tensor, index: int) -> Tensor:
        """View a parameter's part of a buffer as one dimension, in the order of its memory."""
        parameter = self.parameters[index]
        start = self.starts[index]
        end = start + parameter.nbytes
        return buffer[start:end].view(parameter.dtype)

    def in_shape(self, buffer: Tensor, index: int) -> Tensor:
        """View a parameter's part of a buffer in its shape, and in its strides if dense."""
        return self._shaped(self.flat(buffer, index), index)

    def alone(self, index: int) -> Tensor:
        """View a parameter's values as a memory of their own, of which PyTorch sees no other part.

        So what else keeps it can be counted: see `launch.training.averaging.aliases`.
        """
        parameter = self.parameters[index]
        if not parameter.numel():
            return torch.empty_like(parameter.detach())
        flat = self.flat(self.values, index).view(torch.uint8)
        return self._shaped(torch.from_numpy(flat.numpy()).view(parameter.dtype), index)

    def _shaped(self, flat: Tensor, index: int) -> Tensor:
        parameter = self.parameters[index]
        if is_dense(parameter):
            return flat.as_strided(parameter.size(), parameter.stride())
        return flat.view(parameter.size())


class SharedBuffers:
    """Memory by which the first replica of a node sends its buffers to the others.

    Buffers are what a model keeps beside its parameters, such as the running statistics of
    BatchNorm: each replica computes them from its own samples. A step may put another tensor in a
    buffer's place. Where that has another size than at the start, on the first replica or on one of
    the others, the other keeps its own.

    Collective: every replica of ``group`` builds it once, over equal models.
    """

    def __init__(self, model: nn.Module, group: LocalGroup) -> None:
        self._model = model
        self._group = group
        # A byte more each: whether the first replica's is in there.
        sizes = {name: b.nbytes + 1 for name, b in model.named_buffers() if b.numel()}
        self._parts: dict[str, Tensor] = {}
        if sizes:
            memory = group.share_bytes(sum(sizes.values()))
            parts = torch.split(memory, list(sizes.values()))
            self._parts = dict(zip(sizes, parts, strict=True))

    @torch.no_grad()
    def broadcast_from_first(self) -> None:
        """Overwrite the buffers of every replica by those of the first. Collective."""
        if not self._parts:
            return
        pairs = [
            (buffer, self._parts[name])
            for name, buffer in self._model.named_buffers()
            if name in self._parts and buffer.nbytes + 1 == self._parts[name].numel()
        ]
        if self._group.local_rank == 0:
            for part in self._parts.values():
                part[-1] = 0
            for buffer, part in pairs:
                part[:-1] = tensor_bytes(buffer)
                part[-1] = 1
        self._group.barrier()
        if self._group.local_rank > 0:
            for buffer, part in pairs:
                if part[-1]:
                    # A copy first: a part need not begin where a float may.
                    buffer.copy_(part[:-1].clone().view(buffer.dtype).view(buffer.shape))
        self._group.barrier()


def tensor_bytes(tensor: Tensor) -> Tensor:
    """Give the bytes of a tensor in the order of its indices, on the CPU; copied where need be."""
    values = tensor.detach().cpu().resolve_conj().resolve_neg()
    flat = values.contiguous().view(-1)
    if (
        flat.stride(0) != 1
    ):  # torch calls a single element of many contiguous, and has no bytes of it
        flat = flat.clone(memory_format=torch.contiguous_format)
    return flat.view(torch.uint8)


def flat_view(tensor: Tensor) -> Tensor:
    """Return the elements in the order of their memory, as `SharedParameters.flat` does."""
    if is_dense(tensor):
        return tensor.detach().as_strided((tensor.numel(),), (1,))
    return tensor.detach().reshape(-1)


def copy_piece(value: Tensor, parameter: Tensor, start: int, owned: Tensor) -> Tensor:
    """Copy a piece's part of what there is of each element of a parameter.

    Args:
        value: In the shape of ``parameter``, in any strides and on any device.
        parameter: That has the piece.
        start: First element of the piece, in the order of the parameter's memory.
        owned: The piece: one-dimensional, or ``parameter`` itself.

    Returns:
        In the shape of ``owned``, and on its device.
    """
    value = value.detach()
    if owned is parameter or value.stride() != parameter.stride():
        value = torch.empty_like(parameter, dtype=value.dtype, device=owned.device).copy_(value)
    if owned is parameter:
        return value
    # A large parameter has many pieces, which as a rule need no copy of the whole.
    return flat_view(value)[start : start + owned.numel()].to(owned.device, copy=True)


def is_dense(tensor: Tensor) -> bool:
    """Whether the elements fill their memory without gaps or overlaps, in any order."""
    expected = 1
    dimensions = zip(tensor.stride(), tensor.size(), strict=True)
    for stride, size in sorted((s, n) for s, n in dimensions if n > 1):
        if stride != expected:
            return False
        expected *= size
    return True
