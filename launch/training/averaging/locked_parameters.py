"""Parameters that nobody can read before their update.

A locked parameter has another memory, and PyTorch refuses every access to that: whatever operator,
copy or conversion is given the parameter, from Python or from C++, ends with an error. So a use
that nobody saw cannot find the values of the step before. A lock does not hold for a tensor that
shares the parameter's own memory. `find_shared` finds these, by counting what keeps that memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from launch.local_group.shared_parameters import SharedParameters
from launch.training.averaging.aliases import count_users, memory_of


class LockedParameters:
    """Locks and unlocks the parameters of one replica.

    Args:
        shared: The parameters, not locked and each in a memory of its own.
        messages: Of each parameter, what an access to it says while it is locked.
    """

    def __init__(self, shared: SharedParameters, messages: Sequence[str]) -> None:
        self._parameters = shared.parameters
        self._messages = messages
        self._values = [parameter.data for parameter in shared.parameters]
        self._locked = [shared.alone(index) for index in range(len(messages))]
        for tensor, message in zip(self._locked, messages, strict=True):
            torch._C._set_storage_data_ptr_access_error_msg(memory_of(tensor), message)
        self._memories = list(map(memory_of, self._values))
        self._number = {memory: number for number, memory in enumerate(self._memories)}
        self._users = list(map(count_users, self._memories))

    def lock(self) -> None:
        """Lock every parameter."""
        for parameter, locked in zip(self._parameters, self._locked, strict=True):
            parameter.data = locked

    def unlock(self, numbers: Iterable[int]) -> None:
        """Give some parameters their memory back."""
        for number in numbers:
            self._parameters[number].data = self._values[number]

    def find_shared(self) -> int | None:
        """Find a parameter, not locked, whose memory is kept by more than the parameter."""
        users = enumerate(map(count_users, self._memories))
        return next((number for number, now in users if now != self._users[number]), None)

    def find_owner(self, tensor: Tensor) -> int | None:
        """Find the parameter whose memory a tensor shares."""
        return self._number.get(memory_of(tensor)) if torch._C._has_storage(tensor) else None

    def find_message(self, error: RuntimeError) -> str | None:
        """Find the message of a lock in an error: TorchScript and others put a frame around it."""
        text = str(error)
        return next((message for message in self._messages if message in text), None)


def locks_hold() -> bool:
    """Whether locks work with this PyTorch: they are made of its undocumented functions."""
    try:
        tensor = torch.zeros(2)
        users = count_users(memory_of(tensor))
        view = tensor.detach()
        if count_users(memory_of(tensor)) != users + 1:
            return False
        torch._C._set_storage_data_ptr_access_error_msg(memory_of(tensor), "locked")
    except (AttributeError, TypeError):
        return False
    try:
        view.sum()
    except RuntimeError as error:
        return "locked" in str(error)
    return False
