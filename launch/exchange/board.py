"""What do the workers of a node and its rank tell each other about a gradient? A board in memory.

Who computes gradients marks each that is final with the number of the sum that it is for; the rank
adds up those of all nodes, writes down what belongs to it, and lets everybody go on.
"""

from __future__ import annotations

from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]

NO_GRADIENT, DENSE = 0, 255
"""Kinds of gradient. Between them: sparse, with so many sparse dimensions."""


class Board:
    """The board of one node, as its workers and its rank see it.

    Args:
        memory: Shared memory of at least `num_bytes`, zeroed by whoever made it.
        participants: Who computes gradients: worker processes, or one's replicas on threads.
        parameters: Number of trained parameters.

    Attributes:
        marks: int64 of shape ``(participants, parameters)``: number of the latest sum for which a
            gradient is final. Of those that a participant has not, its mark is not looked at.
        done: int64 of shape ``(participants,)``: number of the latest sum for which all are.
        kinds: uint8 of shape ``(participants, parameters)``: what kind of gradient the step gave,
            `NO_GRADIENT`, `DENSE` or between.
        summed: int64 of shape ``(parameters,)``: number of the latest sum over all nodes that lies
            where the workers look for it.
        losses: float64 of shape ``(participants,)``: each one's part of the mean loss.
        waits: uint8 of shape ``(participants,)``: 1 while one has done its part of a late update
            and waits for the others of its node.
        waited_s: float64 of shape ``(participants,)``: what each has waited for sums of the step
            before while it made this one.
        is_full: uint8 of shape ``(participants,)``: 0 where the step was the rest of an epoch,
            smaller than the others.
        kinds_of_all: uint8 of shape ``(parameters,)``: highest kind over all nodes.
        loss_of_all: float64 of shape ``(1,)``: sum over all nodes.
    """

    def __init__(self, memory: Bytes, participants: int, parameters: int) -> None:
        shapes = _shapes(participants, parameters)
        starts = accumulate((_size(shape) for shape in shapes), initial=0)
        parts = [
            memory[start : start + _size(shape)].view(shape[0]).reshape(shape[1])
            for shape, start in zip(shapes, starts, strict=False)
        ]
        self.marks, self.done, self.summed, *parts = parts
        self.losses, self.waited_s, self.loss_of_all, *parts = parts
        self.kinds, self.kinds_of_all, self.waits, self.is_full = parts

    @staticmethod
    def num_bytes(participants: int, parameters: int) -> int:
        """Give the memory that a board needs."""
        return sum(map(_size, _shapes(participants, parameters)))


_Shape = tuple[type[np.generic], tuple[int, ...]]


def _shapes(participants: int, parameters: int) -> list[_Shape]:
    """List types and shapes, those of eight bytes first, so that each is aligned."""
    return [
        (np.int64, (participants, parameters)),
        (np.int64, (participants,)),
        (np.int64, (parameters,)),
        (np.float64, (participants,)),
        (np.float64, (participants,)),
        (np.float64, (1,)),
        (np.uint8, (participants, parameters)),
        (np.uint8, (parameters,)),
        (np.uint8, (participants,)),
        (np.uint8, (participants,)),
    ]


def _size(shape: _Shape) -> int:
    return int(np.dtype(shape[0]).itemsize * np.prod(shape[1]))
