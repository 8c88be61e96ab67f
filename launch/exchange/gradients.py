"""What goes over the network in a step? Gradients, in blocks of a few MB, the last layers' first.

A backward pass gives the gradients of the last layers first, and there most of the bytes of many
models are: they are on their way while the rest is computed. All nodes send the same blocks in the
same order, which follows from the model alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from launch.errors import LaunchError
from launch.exchange.bfloat16 import from_bfloat16, to_bfloat16
from launch.exchange.board import Board, Bytes
from launch.exchange.forms import Held, TensorForm

Array = NDArray[Any]

BLOCK_BYTES = 4 << 20
"""Of one sum. Smaller ones cost more calls, larger ones begin later: two hosts with four of them
under way filled a link of 1 Gb/s with 4 MiB (0.95 Gb/s), and not with 1 MiB (0.85)."""

_SMALL_BYTES = 1 << 18
"""Gradients up to this size are put together in one block."""

_NATIVE: dict[str, type[np.generic]] = {
    "float32": np.float32,
    "float64": np.float64,
    "complex64": np.complex64,
    "complex128": np.complex128,
}
_HALVES: dict[str, type[np.generic]] = {"float16": np.float16, "bfloat16": np.uint16}
"""Summed in float32, as sums of many nodes would lose too much."""

_TYPES = _NATIVE | _HALVES


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One parameter's gradients on this node."""

    index: int
    form: TensorForm
    places: tuple[tuple[int, int], ...]
    """Participant and offset in memory of each replica's gradient. The sum goes to the first."""

    @classmethod
    def all_from(cls, held: Sequence[Held], count: int) -> list[Parameter]:
        """Put together what the workers hold.

        Raises:
            LaunchError: Of some parameter nobody holds a gradient.
        """
        by_index: dict[int, list[Held]] = {}
        for one in sorted(held, key=lambda one: one.participant):
            by_index.setdefault(one.index, []).append(one)
        if missing := sorted(set(range(count)) - by_index.keys()):
            raise LaunchError(
                f"no worker trains parameter {missing[0]} of {count}: does layers() leave some of "
                "the model's modules out?"
            )
        return [
            cls(
                index=index,
                form=by_index[index][0].form,
                places=tuple((one.participant, one.offset) for one in by_index[index]),
            )
            for index in range(count)
        ]

    @property
    def num_bytes(self) -> int:
        """Bytes that go over the network for it, one way."""
        return self.form.num_elements * np.dtype(_wire_type(self.form)).itemsize


class Block:
    """Consecutive gradients, summed over the nodes at once.

    Attributes:
        flat: What is sent, one-dimensional: the memory of a gradient, or a copy of several.
        parameters: Numbers of those that it holds a part of.
    """

    def __init__(self, flat: Array, parts: Sequence[_Part]) -> None:
        self.flat = flat
        self.parameters = tuple(part.index for part in parts)
        self._parts = parts
        waits_for = [(p, part.index) for part in parts for p in part.participants]
        self._waits_for = tuple(np.array(waits_for, dtype=np.int64).T)

    def is_ready(self, board: Board, number: int) -> bool:
        """Whether every gradient in it is final for a sum."""
        return bool((board.marks[self._waits_for] >= number).all())

    def gather(self) -> None:
        """Add up the replicas of this node."""
        for part in self._parts:
            part.gather()

    def scatter(self) -> None:
        """Bring the sum to where the workers look for it."""
        for part in self._parts:
            part.scatter()


class _Part(ABC):
    """What a block has of one parameter."""

    def __init__(self, parameter: Parameter) -> None:
        self.index = parameter.index
        self.participants = [participant for participant, _ in parameter.places]

    @abstractmethod
    def gather(self) -> None:
        """Add up the replicas into the block."""

    @abstractmethod
    def scatter(self) -> None:
        """Take the sum out of the block."""


class _InPlace(_Part):
    """Elements that are sent from where they are."""

    def __init__(self, parameter: Parameter, memory: Bytes, start: int, stop: int) -> None:
        super().__init__(parameter)
        views = [_flat(parameter, memory, offset)[start:stop] for _, offset in parameter.places]
        self.first, *self._others = views

    def gather(self) -> None:
        for other in self._others:
            np.add(self.first, other, out=self.first)

    def scatter(self) -> None:
        return


class _Copied(_Part):
    """A whole parameter that is copied: it is small, or lies in another order elsewhere."""

    def __init__(self, parameter: Parameter, memory: Bytes, room: Array) -> None:
        super().__init__(parameter)
        self._room = room.reshape(parameter.form.shape)
        self._is_bfloat16 = parameter.form.dtype == "bfloat16"
        views = [_shaped(parameter, memory, offset) for _, offset in parameter.places]
        self._first, *self._others = views

    def gather(self) -> None:
        self._room[...] = self._read(self._first)
        for other in self._others:
            self._room += self._read(other)

    def scatter(self) -> None:
        self._first[...] = to_bfloat16(self._room) if self._is_bfloat16 else self._room

    def _read(self, view: Array) -> Array:
        return from_bfloat16(view) if self._is_bfloat16 else view


def cut(
    parameters: Sequence[Parameter],
    is_alike: Sequence[bool],
    memory: Bytes,
    *,
    block_bytes: int = BLOCK_BYTES,
) -> list[Block]:
    """Cut all gradients into blocks, in the order in which a backward pass gives them.

    Args:
        parameters: Of the model, in its order.
        is_alike: Whether all nodes have the elements of a parameter in the same order of memory;
            those that differ are sent in the order of their indices.
        memory: Of the node's workers.
        block_bytes: Largest size, but for a parameter that is copied.
    """
    blocks: list[Block] = []
    waiting: list[Parameter] = []

    def put_together() -> None:
        if waiting:
            blocks.append(_copied(waiting, memory))
            waiting.clear()

    for parameter in reversed(parameters):
        if parameter.form.num_elements == 0:
            continue
        is_small = parameter.num_bytes <= _SMALL_BYTES
        if is_small or not (is_alike[parameter.index] and _is_sent_as_is(parameter.form)):
            filled = sum(one.num_bytes for one in waiting)
            differs = waiting and _wire_type(waiting[0].form) != _wire_type(parameter.form)
            if differs or filled + parameter.num_bytes > block_bytes:
                put_together()
            waiting.append(parameter)
            continue
        put_together()
        blocks += _in_place(parameter, memory, block_bytes)
    put_together()
    return blocks


def _in_place(parameter: Parameter, memory: Bytes, block_bytes: int) -> Iterator[Block]:
    step = block_bytes // np.dtype(_wire_type(parameter.form)).itemsize
    for start in range(0, parameter.form.num_elements, step):
        stop = min(start + step, parameter.form.num_elements)
        part = _InPlace(parameter, memory, start, stop)
        yield Block(part.first, [part])


def _copied(parameters: Sequence[Parameter], memory: Bytes) -> Block:
    sizes = [parameter.form.num_elements for parameter in parameters]
    flat = np.empty(sum(sizes), _wire_type(parameters[0].form))
    rooms = np.split(flat, np.cumsum(sizes)[:-1])
    parts = [_Copied(p, memory, room) for p, room in zip(parameters, rooms, strict=True)]
    return Block(flat, parts)


def _flat(parameter: Parameter, memory: Bytes, offset: int) -> Array:
    """View a gradient's memory; only where it has no gaps."""
    kind = np.dtype(_memory_type(parameter.form))
    return memory[offset : offset + parameter.form.num_elements * kind.itemsize].view(kind)


def _shaped(parameter: Parameter, memory: Bytes, offset: int) -> Array:
    flat, form = _flat(parameter, memory, offset), parameter.form
    strides = [stride * flat.itemsize for stride in form.strides]
    return as_strided(flat, form.shape, strides)


def _is_sent_as_is(form: TensorForm) -> bool:
    return form.dtype in _NATIVE


def _memory_type(form: TensorForm) -> type[np.generic]:
    if form.dtype not in _TYPES:
        known = ", ".join(sorted(_TYPES))
        raise LaunchError(f"a parameter of type {form.dtype}: several nodes can average {known}")
    return _TYPES[form.dtype]


def _wire_type(form: TensorForm) -> type[np.generic]:
    return np.float32 if form.dtype in _HALVES else _memory_type(form)
