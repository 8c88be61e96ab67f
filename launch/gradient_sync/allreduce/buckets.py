"""Buckets: gradients of a few MB that are summed over the nodes at once, last layers first.

A backward pass gives the gradients of the last layers first, and there most of the bytes of many
models are: they are in flight while the rest is computed. All nodes send the same buckets, which
follow from the model alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from launch.errors import LaunchError
from launch.gradient_sync.node_channel.gradient_layout import GradientLocation, TensorLayout
from launch.gradient_sync.node_channel.shared_state import Bytes, SharedStepState
from launch.gradient_sync.wire_formats._base import Floats
from launch.gradient_sync.wire_formats.bf16 import from_bfloat16, to_bfloat16

Array = NDArray[Any]

BUCKET_BYTES = 4 << 20
"""Size of a bucket. Smaller ones cost more calls, larger ones begin later: two hosts with four in
flight filled a link of 1 Gb/s with 4 MiB (0.95 Gb/s), and not with 1 MiB (0.85)."""

_SMALL_BYTES = 1 << 18
"""Gradients up to this size are merged into one bucket."""

_NATIVE: dict[str, type[np.generic]] = {
    "float32": np.float32,
    "float64": np.float64,
    "complex64": np.complex64,
    "complex128": np.complex128,
}
_HALVES: dict[str, type[np.generic]] = {"float16": np.float16, "bfloat16": np.uint16}
"""Summed in float32, as sums of many nodes would lose too much."""

_TYPES = _NATIVE | _HALVES

Replicas = Sequence[GradientLocation]
"""One parameter's gradients on this node. Their sum goes to the first."""


class Bucket:
    """Consecutive gradients that are summed over the nodes at once.

    Attributes:
        flat: One-dimensional memory that is sent: that of a gradient, or a copy of several.
        parameters: Numbers of the parameters whose gradients are in it, whole or in part.
        errors: What messages about it have not said yet, for each real number of ``flat``; ``None``
            before `keep_errors`.
    """

    def __init__(self, flat: Array, parts: Sequence[_BucketPart]) -> None:
        self.flat = flat
        self.errors: Floats | None = None
        self.parameters = tuple(part.index for part in parts)
        self._parts = parts
        waits_for = [(p, part.index) for part in parts for p in part.participants]
        self._waits_for = tuple(np.array(waits_for, dtype=np.int64).T)

    def is_ready(self, state: SharedStepState, number: int) -> bool:
        """Whether every gradient in it is final for the sum of this number."""
        return bool((state.ready[self._waits_for] >= number).all())

    def sum_replicas(self) -> None:
        """Sum the gradients of this node's replicas."""
        for part in self._parts:
            part.sum_replicas()

    def write_back(self) -> None:
        """Copy the sum to where the workers read it."""
        for part in self._parts:
            part.write_back()

    def keep_errors(self) -> None:
        """Make the errors, all zero."""
        self.errors = np.zeros(as_reals(self.flat).size, np.float32)

    def show_errors(self) -> None:
        """Copy the errors to where the sum usually is, for the workers; round them likewise."""
        assert self.errors is not None, "they are kept"
        as_reals(self.flat)[:] = self.errors
        self.write_back()
        self.take_errors()

    def take_errors(self) -> None:
        """Overwrite the errors by what the workers have put where the sum usually is."""
        assert self.errors is not None, "they are kept"
        for part in self._parts:
            part.read_first()
        self.errors[:] = as_reals(self.flat)


class _BucketPart(ABC):
    """Part of a bucket that belongs to one parameter."""

    def __init__(self, replicas: Replicas) -> None:
        self.index = replicas[0].index
        self.participants = [replica.participant for replica in replicas]

    @abstractmethod
    def read_first(self) -> None:
        """Copy the first replica into the bucket."""

    @abstractmethod
    def sum_replicas(self) -> None:
        """Sum the replicas into the bucket."""

    @abstractmethod
    def write_back(self) -> None:
        """Copy the sum out of the bucket."""


class _InPlacePart(_BucketPart):
    """Elements that are sent from the gradient's own memory."""

    def __init__(self, replicas: Replicas, memory: Bytes, start: int, stop: int) -> None:
        super().__init__(replicas)
        self.first, *self._others = [_flat(each, memory)[start:stop] for each in replicas]

    def read_first(self) -> None:
        return

    def sum_replicas(self) -> None:
        for other in self._others:
            np.add(self.first, other, out=self.first)

    def write_back(self) -> None:
        return


class _CopiedPart(_BucketPart):
    """Whole gradient that is copied: it is small, or its order in memory differs between nodes."""

    def __init__(self, replicas: Replicas, memory: Bytes, staging: Array) -> None:
        super().__init__(replicas)
        self._staging = staging.reshape(replicas[0].layout.shape)
        self._is_bfloat16 = replicas[0].layout.dtype == "bfloat16"
        self._first, *self._others = [_shaped(each, memory) for each in replicas]

    def read_first(self) -> None:
        self._staging[...] = self._read(self._first)

    def sum_replicas(self) -> None:
        self.read_first()
        for other in self._others:
            self._staging += self._read(other)

    def write_back(self) -> None:
        self._first[...] = to_bfloat16(self._staging) if self._is_bfloat16 else self._staging

    def _read(self, view: Array) -> Array:
        return from_bfloat16(view) if self._is_bfloat16 else view


def make_buckets(
    gradients: Sequence[Replicas],
    has_same_layout: Sequence[bool],
    memory: Bytes,
) -> list[Bucket]:
    """Cut all gradients into buckets, in the order in which a backward pass gives them.

    Args:
        gradients: Of each parameter, in the model's order.
        has_same_layout: Whether all nodes have a parameter's elements in the same order of memory;
            those that differ are sent in the order of their indices.
        memory: Of the node's workers.
    """
    buckets: list[Bucket] = []
    pending: list[Replicas] = []
    filled = 0

    def flush_small() -> None:
        if pending:
            buckets.append(_copy_bucket(pending, memory))
            pending.clear()

    for replicas, is_same in reversed(list(zip(gradients, has_same_layout, strict=True))):
        layout = replicas[0].layout
        if layout.num_elements == 0:
            continue
        wire_type = _wire_type(layout)
        num_bytes = layout.num_elements * wire_type.itemsize
        if num_bytes <= _SMALL_BYTES or not (is_same and layout.dtype in _NATIVE):
            differs = pending and _wire_type(pending[0][0].layout) != wire_type
            if not pending or differs or filled + num_bytes > BUCKET_BYTES:
                flush_small()
                filled = 0
            pending.append(replicas)
            filled += num_bytes
            continue
        flush_small()
        step = BUCKET_BYTES // wire_type.itemsize
        for start in range(0, layout.num_elements, step):
            part = _InPlacePart(replicas, memory, start, min(start + step, layout.num_elements))
            buckets.append(Bucket(part.first, [part]))
    flush_small()
    return buckets


def _copy_bucket(gradients: Sequence[Replicas], memory: Bytes) -> Bucket:
    sizes = [replicas[0].layout.num_elements for replicas in gradients]
    flat = np.empty(sum(sizes), _wire_type(gradients[0][0].layout))
    stagings = np.split(flat, np.cumsum(sizes)[:-1])
    parts = [
        _CopiedPart(replicas, memory, staging)
        for replicas, staging in zip(gradients, stagings, strict=True)
    ]
    return Bucket(flat, parts)


def _flat(location: GradientLocation, memory: Bytes) -> Array:
    """View a gradient's memory; only where it has no gaps."""
    kind, layout = _memory_type(location.layout), location.layout
    end = location.offset + layout.num_elements * kind.itemsize
    return memory[location.offset : end].view(kind)


def _shaped(location: GradientLocation, memory: Bytes) -> Array:
    flat, layout = _flat(location, memory), location.layout
    strides = [stride * flat.itemsize for stride in layout.strides]
    return as_strided(flat, layout.shape, strides)


def as_reals(numbers: Array) -> Array:
    """View complex numbers as pairs of real ones."""
    return numbers.view(numbers.real.dtype) if np.iscomplexobj(numbers) else numbers


def _memory_type(layout: TensorLayout) -> np.dtype[Any]:
    if layout.dtype not in _TYPES:
        known = ", ".join(sorted(_TYPES))
        raise LaunchError(f"a parameter of type {layout.dtype}: several hosts can average {known}")
    return np.dtype(_TYPES[layout.dtype])


def _wire_type(layout: TensorLayout) -> np.dtype[Any]:
    return np.dtype(np.float32) if layout.dtype in _HALVES else _memory_type(layout)
