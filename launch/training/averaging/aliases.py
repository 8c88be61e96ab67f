"""Tensors that share the memory of a parameter: counted, and moved or copied along with it.

A model may keep a view of a parameter from its constructor, or ``parameter.detach()``. In one
process such a tensor always has the parameter's values. Here parameters move to shared memory, and
models are copied: these tensors must come along.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from launch.checkpoints.training_state import parameter_names
from launch.errors import UseCaseError
from launch.local_group.shared_parameters import is_dense


def memory_of(tensor: Tensor) -> int:
    """Return what identifies the memory of a tensor: equal for all tensors that share it."""
    return int(tensor.untyped_storage()._cdata)


def count_users(memory: int) -> int:
    """Count the tensors and other objects that keep a memory alive, each view of it too.

    Args:
        memory: What `memory_of` returned for a tensor that is still there.
    """
    return int(torch._C._storage_Use_Count(memory))


@contextmanager
def aliases_follow(model: nn.Module) -> Iterator[None]:
    """Move the tensors that share a trained parameter's memory to where the context moves that.

    The context may give each such parameter a memory of its own, in which its elements lie as
    before.

    Raises:
        UseCaseError: Something that cannot be moved shares the memory.
    """
    aliases = _find_aliases(model)
    yield
    for parameter, begin, tensors in aliases:
        for tensor in tensors:
            tensor.data = _moved(tensor, parameter, begin)


def copy_model(model: nn.Module) -> nn.Module:
    """Copy a model; what shares a trained parameter's memory shares that of its copy afterwards.

    Raises:
        UseCaseError: Something that cannot be copied so shares the memory.
    """
    done: dict[int, Any] = {}
    for parameter, begin, tensors in _find_aliases(model):
        copied = deepcopy(parameter, done)
        for tensor in tensors:
            if tensor.grad_fn is None:  # others cannot be copied, as torch says if they have to be
                done[id(tensor)] = alias = deepcopy(tensor)
                alias.data = _moved(tensor, copied, begin)
    return deepcopy(model, done)


def _find_aliases(model: nn.Module) -> list[tuple[nn.Parameter, int, list[Tensor]]]:
    """Find each trained parameter that shares its memory, where it began, and the others there."""
    trained = [p for p in model.parameters() if p.requires_grad and p.numel()]
    lone = torch.empty(1)
    alone = count_users(memory_of(lone))
    crowded: dict[int, list[Tensor]] = {
        memory: [] for memory in map(memory_of, trained) if count_users(memory) > alone
    }
    with torch._C.DisableTorchFunctionSubclass():  # whatever kinds of tensors there are
        for thing in gc.get_objects() if crowded else ():
            if issubclass(type(thing), Tensor) and torch._C._has_storage(thing) and thing.numel():
                crowded.get(memory_of(thing), []).append(thing)
    found = []
    identities = set(map(id, trained))
    for parameter in trained:
        begin, end = _span(parameter)
        others = [
            tensor
            for tensor in crowded.get(memory_of(parameter), ())
            if tensor is not parameter
            and (
                is_dense(tensor) or id(tensor) not in identities
            )  # which may be columns side by side
            and (_span(tensor)[0] < end and _span(tensor)[1] > begin)
        ]
        if others:
            _check_movable(parameter, others, identities, parameter_names(model)[id(parameter)])
            found.append((parameter, begin, others))
    return found


def _check_movable(
    parameter: nn.Parameter, others: Sequence[Tensor], trained: set[int], name: str
) -> None:
    begin, end = _span(parameter)
    if (
        not is_dense(parameter)
        or not parameter.untyped_storage().resizable()  # which NumPy forbids for its arrays
        or any(begin > _span(tensor)[0] or _span(tensor)[1] > end for tensor in others)
        or any(id(tensor) in trained for tensor in others)
    ):
        raise UseCaseError(
            f"parameter {name!r} shares its memory with another parameter, a NumPy array or a "
            "larger tensor, which would not see its updates: give it a copy, or use one parameter "
            "in both places"
        )


def _moved(tensor: Tensor, parameter: Tensor, begin: int) -> Tensor:
    """View a parameter's present memory as a tensor viewed that which began at some byte."""
    start = tensor.storage_offset() - begin // tensor.element_size()
    view = torch.empty(0, dtype=tensor.dtype)
    return view.set_(parameter.untyped_storage(), start, tensor.size(), tensor.stride())


def _span(tensor: Tensor) -> tuple[int, int]:
    """Return where in its memory a tensor begins and ends, in bytes."""
    reach = sum((n - 1) * s for n, s in zip(tensor.size(), tensor.stride(), strict=True))
    begin, size = int(tensor.storage_offset()), tensor.element_size()
    return begin * size, (begin + int(reach) + 1) * size
