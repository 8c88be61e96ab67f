"""Where does a gradient lie, and how? Said by a worker, understood by a rank that has no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class TensorForm:
    """Type and layout of a tensor in memory."""

    dtype: str
    """torch's name, such as ``float32``."""
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """In elements, as torch counts."""

    @classmethod
    def of(cls, tensor: Tensor) -> TensorForm:
        """Describe a tensor."""
        name = str(tensor.dtype).removeprefix("torch.")
        return cls(name, tuple(tensor.shape), tuple(tensor.stride()))

    @property
    def num_elements(self) -> int:
        """Number of elements."""
        count = 1
        for size in self.shape:
            count *= size
        return count


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """One participant's gradient of one parameter."""

    index: int
    """Of the parameter."""
    participant: int
    offset: int
    """Of its first element in the node's shared memory, in bytes."""
    form: TensorForm

    def to_json(self) -> dict[str, Any]:
        """Give the values as JSON can hold them."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Held:
        """Read what `to_json` gave."""
        form = values["form"]
        shape, strides = tuple(form["shape"]), tuple(form["strides"])
        return cls(**{**values, "form": TensorForm(form["dtype"], shape, strides)})
