"""Whole model in shared memory, of which each worker trains a part."""

from __future__ import annotations

import gc
from collections.abc import Iterable
from itertools import accumulate

import torch
from torch import Tensor, nn

from launch.errors import UseCaseError
from launch.local_group.alignment import aligned
from launch.local_group.group import LocalGroup
from launch.training.averaging.aliases import count_users, memory_of


class WholeModel:
    """One copy of a model's parameters and buffers for all workers of a node.

    Collective: every worker of ``group`` builds it once, over equal models on the CPU. Afterwards
    the parameters of the model are in the shared memory, so that an update in place changes them
    for all. A worker that trains a copy elsewhere, on a GPU for instance, sends its values by
    `sync_model`. Buffers are each worker's own until then.
    """

    def __init__(self, model: nn.Module, group: LocalGroup) -> None:
        self._group = group
        self._parameters = list(model.parameters())
        self._buffers = [buffer for buffer in model.buffers() if buffer.numel() > 0]
        tensors = [*self._parameters, *self._buffers]
        sizes = [aligned(tensor.nbytes) for tensor in tensors]
        self._memory = group.share_bytes(sum(sizes))
        starts = accumulate(sizes, initial=0)
        self._shared = {
            id(tensor): _view(self._memory, start, tensor)
            for tensor, start in zip(tensors, starts, strict=False)
        }
        if group.local_rank == 0:
            for tensor in tensors:
                self._shared[id(tensor)].copy_(tensor.detach())
        group.barrier()
        for parameter in self._parameters:
            parameter.data = self._shared[id(parameter)]
        self._users = self._count_users()

    def has_new_users(self) -> bool:
        """Whether something has begun to keep the memory of a parameter or buffer."""
        if self._count_users() == self._users:
            return False
        gc.collect()  # and not what only waits to be collected
        return self._count_users() != self._users

    def _count_users(self) -> int:
        return count_users(memory_of(self._memory))

    @torch.no_grad()
    def sync_model(self, owned: Iterable[Tensor], device: torch.device) -> None:
        """Give every worker's model one state, on a device. Collective.

        Args:
            owned: Parameters and buffers of this worker's stage, which the others copy; at most one
                worker owns a tensor.
            device: Of this worker's model afterwards.

        Raises:
            UseCaseError: A tensor is none of those of the model at the start.
        """
        for tensor in owned:
            if tensor.numel() == 0:
                continue
            shared = self._shared.get(id(tensor))
            if shared is None:
                raise UseCaseError(
                    f"layers() hold a tensor of shape {tuple(tensor.shape)} that model() did not "
                    "make: keep its parameters and buffers, and change them in place"
                )
            if shared.data_ptr() != tensor.data_ptr():
                shared.copy_(tensor)
        self._group.barrier()
        for parameter in self._parameters:
            if device.type != "cpu" and parameter.device != device:
                parameter.data = self._shared[id(parameter)].to(device)
        for buffer in self._buffers:
            buffer.data = buffer.to(device)
            buffer.copy_(self._shared[id(buffer)])
        self._group.barrier()

    def release_copies(self, others: Iterable[nn.Parameter]) -> None:
        """Free the copies that `sync_model` made of parameters that others train."""
        for parameter in others:
            parameter.data = self._shared[id(parameter)]


def has_extra_state(module: nn.Module) -> bool:
    """Whether a module has state that is neither a parameter nor a buffer, by its own account."""
    usual = nn.Module.get_extra_state
    return any(type(each).get_extra_state is not usual for each in module.modules())


def move_in_place(module: nn.Module, device: torch.device) -> None:
    """Move parameters and buffers to a device; each tensor stays the same object.

    `torch.nn.Module.to` makes new buffers, which other references to the old ones would miss.
    """
    for tensor in (*module.parameters(), *module.buffers()):
        tensor.data = tensor.data.to(device)


def _view(memory: Tensor, start: int, tensor: Tensor) -> Tensor:
    """View a part of the memory in the shape of a tensor, and in its strides without gaps."""
    form = torch.empty_like(tensor, device="meta")
    flat = memory[start : start + tensor.nbytes].view(tensor.dtype)
    return flat.as_strided(form.size(), form.stride())
