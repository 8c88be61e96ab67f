"""Settings and states as JSON, with tags for what JSON lacks.

Tensors are stored elsewhere, under a name.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

from torch import Tensor

from launch.errors import CheckpointError

_TAG = "__ddlplan__"
StoreTensor = Callable[[Tensor], str]
GetTensor = Callable[[str], Tensor]


def store_in(tensors: dict[str, Tensor], prefix: str) -> StoreTensor:
    """Make a function that stores tensors in a table, each under a name with this prefix."""

    def store(tensor: Tensor) -> str:
        name = f"{prefix}:{len(tensors)}"
        tensors[name] = tensor
        return name

    return store


def encode(value: Any, what: str, store_tensor: StoreTensor | None = None) -> Any:
    """Convert a value to one that JSON can hold.

    Args:
        value: Numbers, texts, lists, dictionaries; numpy's numbers become Python's.
        what: Name of the value in an error.
        store_tensor: Stores a tensor and returns its name; ``None`` where tensors are refused.

    Raises:
        CheckpointError: The value holds something else.
    """
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else {_TAG: "float", "is": repr(value)}
        case Tensor() if store_tensor is not None:
            return {_TAG: "tensor", "is": store_tensor(value)}
        case list():
            return [encode(item, f"{what}[{i}]", store_tensor) for i, item in enumerate(value)]
        case tuple():
            return {_TAG: "tuple", "is": encode(list(value), what, store_tensor)}
        case dict():
            items = [
                [encode(key, f"a key of {what}"), encode(item, f"{what}[{key!r}]", store_tensor)]
                for key, item in value.items()
            ]
            if type(value) is dict and all(isinstance(k, str) and k != _TAG for k in value):
                return dict(items)
            return {_TAG: "counter" if isinstance(value, Counter) else "dict", "is": items}
    if isinstance(number := _as_number(value), (bool, int, float)):
        return encode(number, what)
    raise CheckpointError(
        f"{what} is a {type(value).__name__}, which a file of ours cannot hold: keep numbers, "
        "texts, tensors, lists and dictionaries"
    )


def decode(value: Any, get: GetTensor | None = None) -> Any:
    """Convert what `encode` returned back to its value.

    Args:
        value: From `encode`.
        get: Returns the tensor of a name.
    """
    if isinstance(value, list):
        return [decode(item, get) for item in value]
    if not isinstance(value, dict):
        return value
    content = value.get("is")
    match value.get(_TAG):
        case None:
            return {key: decode(item, get) for key, item in value.items()}
        case "float":
            return float(str(content))
        case "tensor" if get is not None:
            return get(str(content))
        case "tuple":
            return tuple(decode(content, get))
        case "dict":
            return {decode(key): decode(item, get) for key, item in content or ()}
        case "counter":
            return Counter({decode(key): decode(item, get) for key, item in content or ()})
        case tag:
            raise CheckpointError(f"a value is tagged {tag!r}, which this ddlplan does not know")


def _as_number(value: Any) -> Any:
    """Return the number of a numpy scalar."""
    item = getattr(value, "item", None)
    return item() if callable(item) and getattr(value, "shape", None) == () else None
