"""Tensors that share the memory of a parameter: counted, and moved or copied along with it.

A model may keep a view of a parameter from its constructor, or ``parameter.detach()``. In one
process such a tensor always has the parameter's values. Here parameters move to shared memory, and
models are copied: these tensors must come along.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
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
def aliases_follow(
    model: nn.Module, parameters: Iterable[nn.Parameter] | None = None
) -> Iterator[None]:
    """Let tensors that share the memory of a trained parameter share it after a move too.

    The context may move each such parameter to a memory of its own. Where the elements are in
    another order there, only tensors that are the whole parameter can follow.

    Args:
        model: The model.
        parameters: Those of it that the context moves, all where they are not named.

    Raises:
        UseCaseError: Something that cannot be moved shares the memory.
    """
    aliases = _find_movable(model, parameters)
    following = {id(tensor) for alias in aliases for tensor in alias.tensors}
    tables = [module._buffers for module in model.modules()]
    buffers = [(t, name, b) for t in tables for name, b in t.items() if id(b) in following]
    yield
    for alias in aliases:
        for tensor in alias.tensors:
            tensor.data = _moved(tensor, alias, alias.parameter)
    for table, name, buffer in buffers:
        table[name] = buffer  # `torch.nn.Module.to` puts another in its place


def order_pictures(model: nn.Module) -> None:
    """Put weights and buffers of pictures, of four dimensions, into channels_last, in their place.

    Not by `torch.nn.Module.to`, which fails where there are weights of volumes too, of five, and
    makes new buffers. Buffers in the memory of a parameter are left to `aliases_follow`.
    """
    memories = {memory_of(p) for p in model.parameters() if torch._C._has_storage(p)}
    pictures: list[Tensor] = [p for p in model.parameters() if p.dim() == 4]
    pictures += (b for b in model.buffers() if b.dim() == 4 and memory_of(b) not in memories)
    for tensor in pictures:
        tensor.data = tensor.data.to(memory_format=torch.channels_last)


def find_shared_parameter(model: nn.Module) -> str | None:
    """Find a trained parameter whose memory something else shares, and give its name."""
    return next((alias.name for alias in _find_aliases(model)), None)


def copy_model(model: nn.Module) -> nn.Module:
    """Copy a model; what shares a trained parameter's memory shares that of its copy afterwards.

    Raises:
        UseCaseError: Something that cannot be copied so shares the memory.
    """
    done: dict[int, Any] = {}
    for alias in _find_movable(model):
        copied = deepcopy(alias.parameter, done)
        for tensor in alias.tensors:
            if tensor.grad_fn is None:  # others cannot be copied, as torch says if they have to be
                done[id(tensor)] = of_copy = deepcopy(tensor)
                of_copy.data = _moved(tensor, alias, copied)
    return deepcopy(model, done)


@dataclass(frozen=True, slots=True)
class _Aliases:
    """Tensors in the memory of a parameter, and its place there when they were found."""

    parameter: nn.Parameter
    name: str
    begin: int
    stride: tuple[int, ...]
    tensors: list[Tensor]


def _find_movable(
    model: nn.Module, parameters: Iterable[nn.Parameter] | None = None
) -> list[_Aliases]:
    """Find what `_find_aliases` finds, and check that it can be moved.

    Raises:
        UseCaseError: Something cannot be moved.
    """
    found = _find_aliases(model, parameters)
    trained = {id(parameter) for parameter in model.parameters() if parameter.requires_grad}
    for alias in found:
        begin, end = _span(alias.parameter)
        if (
            not is_dense(alias.parameter)
            or not alias.parameter.untyped_storage().resizable()  # which NumPy forbids for its own
            or any(begin > _span(tensor)[0] or _span(tensor)[1] > end for tensor in alias.tensors)
            or any(id(tensor) in trained for tensor in alias.tensors)
        ):
            raise UseCaseError(
                f"parameter {alias.name!r} shares its memory with another parameter, a NumPy array "
                "or a larger tensor, which would not see its updates: give it a copy, or use one "
                "parameter in both places"
            )
    return found


def _find_aliases(
    model: nn.Module, parameters: Iterable[nn.Parameter] | None = None
) -> list[_Aliases]:
    """Find the trained parameters, of these or of all, whose memory other tensors share."""
    trained = [p for p in model.parameters() if p.requires_grad and p.numel()]
    names = parameter_names(model)
    wanted = set(map(id, trained if parameters is None else parameters))
    lone = torch.empty(1)
    alone = count_users(memory_of(lone))
    crowded: dict[int, list[Tensor]] = {
        memory_of(parameter): []
        for parameter in trained
        if id(parameter) in wanted and count_users(memory_of(parameter)) > alone
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
            # Trained ones that are not dense may be columns side by side.
            and (is_dense(tensor) or id(tensor) not in identities)
            and (_span(tensor)[0] < end and _span(tensor)[1] > begin)
        ]
        if others:
            name = names[id(parameter)]
            found.append(_Aliases(parameter, name, begin, parameter.stride(), others))
    return found


def _moved(tensor: Tensor, found: _Aliases, parameter: Tensor) -> Tensor:
    """View the memory that a parameter has now as a tensor viewed the one before."""
    if _order(parameter, parameter.stride()) == _order(parameter, found.stride):
        start = tensor.storage_offset() - found.begin // tensor.element_size()
        view = torch.empty(0, dtype=tensor.dtype, device=parameter.device)
        return view.set_(parameter.untyped_storage(), start, tensor.size(), tensor.stride())
    whole = (parameter.dtype, parameter.size(), found.stride)
    if (tensor.dtype, tensor.size(), tensor.stride()) != whole:
        raise UseCaseError(
            f"the model keeps a part of parameter {found.name!r} or another view of it, which "
            "would not see its updates: give it a copy, or take the part when it is used"
        )
    return parameter.data


def _order(tensor: Tensor, stride: Sequence[int]) -> list[int]:
    """Give the strides of the dimensions that have more than one element."""
    return [step for step, size in zip(stride, tensor.size(), strict=True) if size > 1]


def _span(tensor: Tensor) -> tuple[int, int]:
    """Return where in its memory a tensor begins and ends, in bytes."""
    reach = sum((n - 1) * s for n, s in zip(tensor.size(), tensor.stride(), strict=True))
    begin, size = int(tensor.storage_offset()), tensor.element_size()
    return begin * size, (begin + int(reach) + 1) * size
