"""Layout of a node's gradients in shared memory: reported by its workers, read without torch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from launch.errors import LaunchError
from launch.reports import Report

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class TensorLayout:
    """Type and layout of a tensor in memory."""

    dtype: str
    """torch's name, such as ``float32``."""
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """In elements, as torch counts."""

    @classmethod
    def of(cls, tensor: Tensor) -> TensorLayout:
        """Describe a tensor."""
        name = str(tensor.dtype).removeprefix("torch.")
        return cls(name, tuple(tensor.shape), tuple(tensor.stride()))

    @property
    def num_elements(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientLocation:
    """One participant's gradient of one parameter."""

    index: int
    """Of the parameter."""
    participant: int
    offset: int
    """Of its first element in the node's shared memory, in bytes."""
    layout: TensorLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientLayout(Report):
    """Where gradients and the shared step state are: of one worker, or merged of a whole node."""

    state_offset: int
    """Of the `SharedStepState` in the node's shared memory, in bytes."""
    participants: int
    """Worker processes that compute gradients, or replicas on threads of one."""
    parameters: int
    """Trained parameters of the model."""
    locations: tuple[GradientLocation, ...]
    samples: Mapping[str, int]
    """Samples that this node has found, by their use."""

    @staticmethod
    def merge(layouts: Sequence[GradientLayout]) -> GradientLayout:
        """Merge the layouts of all workers of a node."""
        locations = [one for layout in layouts for one in layout.locations]
        return replace(layouts[0], locations=tuple(locations))

    def by_parameter(self) -> list[tuple[GradientLocation, ...]]:
        """Group the locations by parameter, in the model's order, each group by participant.

        Raises:
            LaunchError: A parameter has no location.
        """
        groups: list[list[GradientLocation]] = [[] for _ in range(self.parameters)]
        for location in sorted(self.locations, key=lambda each: each.participant):
            groups[location.index].append(location)
        if [] in groups:
            raise LaunchError(
                f"no worker trains parameter {groups.index([])} of {self.parameters}: does "
                "layers() leave some of the model's modules out?"
            )
        return [tuple(group) for group in groups]
