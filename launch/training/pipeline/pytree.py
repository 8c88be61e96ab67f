"""Pytrees of tensors as plain bytes: their structure as JSON, then each tensor.

Nothing is pickled: what arrives are tensors, numbers and texts, and no code.
"""

from __future__ import annotations

import json
from typing import Any

import torch
from torch import Tensor, distributed
from torch.distributed import ProcessGroup

from launch.errors import UseCaseError
from launch.local_group.alignment import aligned
from launch.local_group.shared_parameters import tensor_bytes


def flatten(value: Any, sent_as: str | None = None) -> tuple[Any, list[Tensor]]:
    """Flatten a pytree of tensors.

    Args:
        value: Tensors, numbers and texts in dicts with text keys, lists and tuples.
        sent_as: What an error calls a value that is sent to another stage; by default it is not
            sent, and may hold anything.

    Returns:
        The structure, as plain values that JSON can hold where it is sent, and the tensors in their
        order.

    Raises:
        UseCaseError: It is sent, and holds something else.
    """
    tensors: list[Tensor] = []

    def take(part: Any) -> Any:
        if isinstance(part, Tensor):
            tensors.append(part)
            return {"tensor": len(tensors) - 1}
        if type(part) is dict and all(isinstance(key, str) for key in part):
            return {"dict": {key: take(inner) for key, inner in part.items()}}
        if type(part) in (list, tuple):
            return {type(part).__name__: [take(inner) for inner in part]}
        if sent_as is None or part is None or type(part) in (bool, int, float, str):
            return {"value": part}
        raise UseCaseError(
            f"{sent_as} hold a {type(part).__name__}, which cannot go from one stage of a pipeline "
            "to another: use tensors, numbers and texts in dicts, lists and tuples, or other "
            "--strategies"
        )

    return take(value), tensors


def unflatten(structure: Any, tensors: list[Tensor]) -> Any:
    """Rebuild the pytree that `flatten` was given."""
    ((kind, content),) = structure.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "dict":
        return {key: unflatten(inner, tensors) for key, inner in content.items()}
    if kind in ("list", "tuple"):
        parts = [unflatten(inner, tensors) for inner in content]
        return parts if kind == "list" else tuple(parts)
    return content


def send_targets(value: Any, to_rank: int, group: ProcessGroup) -> list[distributed.Work]:
    """Start to send targets, a pytree of tensors, to another worker, from the memory of the CPU.

    Returns:
        Works to wait for; they keep the message alive.

    Raises:
        UseCaseError: See `flatten`.
    """
    structure, tensors = flatten(value, "targets")
    specs = [[str(t.dtype).removeprefix("torch."), list(t.shape)] for t in tensors]
    header = json.dumps({"structure": structure, "specs": specs}).encode()
    parts = [torch.frombuffer(bytearray(header), dtype=torch.uint8)]
    parts += map(tensor_bytes, tensors)
    message = torch.zeros(sum(aligned(part.numel()) for part in parts), dtype=torch.uint8)
    offset = 0
    for part in parts:
        message[offset : offset + part.numel()] = part
        offset += aligned(part.numel())
    sizes = torch.tensor([len(header), message.numel()])
    works = [distributed.isend(data, to_rank, group=group) for data in (sizes, message)]
    return [work for work in works if work is not None]


def receive_targets(from_rank: int, group: ProcessGroup) -> Any:
    """Wait for what another worker sends by `send_targets`."""
    sizes = torch.empty(2, dtype=torch.int64)
    distributed.recv(sizes, from_rank, group=group)
    header_bytes, total_bytes = sizes.tolist()
    message = torch.empty(total_bytes, dtype=torch.uint8)
    distributed.recv(message, from_rank, group=group)
    header = json.loads(message[:header_bytes].numpy().tobytes())
    offset, tensors = aligned(header_bytes), []
    for name, shape in header["specs"]:
        dtype = getattr(torch, name)
        num_bytes = torch.Size(shape).numel() * dtype.itemsize
        tensors.append(message[offset : offset + num_bytes].view(dtype).view(shape))
        offset += aligned(num_bytes)
    return unflatten(header["structure"], tensors)
