"""Step state in memory that a node's workers share with their rank.

Workers set the ready flag of each final gradient to the number of its sum. The rank sums the
gradients of all nodes, writes the results that belong to the step, and releases the workers.
"""

from __future__ import annotations

from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from launch.noise_scale.estimate import EXCHANGED

Bytes = NDArray[np.uint8]

NO_GRADIENT, DENSE = 0, 255
"""Kinds of gradient. Between them: sparse, with so many sparse dimensions."""


class SharedStepState:
    """Step state of one node, as its workers and its rank see it.

    Args:
        memory: Shared memory of at least `num_bytes`, zeroed by whoever made it.
        participants: Number of worker processes, or of the replicas on threads of one.
        parameters: Number of trained parameters.

    Attributes:
        ready: int64 of shape ``(participants, parameters)``: ready flags, numbers of the
            latest sum for which a gradient is final. Unused for gradients of other participants.
        done: int64 of shape ``(participants,)``: number of the latest sum for which all are final.
        kinds: uint8 of shape ``(participants, parameters)``: kind of gradient that the step gave,
            `NO_GRADIENT`, `DENSE` or between.
        summed: int64 of shape ``(parameters,)``: number of the latest sum over all nodes that is
            where the workers read it.
        owners: int64 of shape ``(parameters,)``: participant in whose gradient the sum is left.
            Zero before the rank knows where all gradients are.
        buckets: int64 of shape ``(parameters,)``: number of the bucket in which it is sent together
            with other parameters, from 1. Zero where it is alone, or before the rank knows.
        losses: float64 of shape ``(participants,)``: part of the loss.
        weights: float64 of shape ``(participants,)``: weight of that part, where parts have one.
        waits_for_node: uint8 of shape ``(participants,)``: 1 while a participant has done its
            part of a late update and waits for the others of its node.
        waited_s: float64 of shape ``(participants,)``: time that each has waited, during this step,
            for sums of the step before.
        is_full: uint8 of shape ``(participants,)``: 0 where the step was the rest of an epoch,
            smaller than the others.
        global_kinds: uint8 of shape ``(parameters,)``: highest kind over all nodes.
        global_loss: float64 of shape ``(2,)``: sums of losses and weights over all nodes.
        noise: float64 of shape ``(participants, EXCHANGED)``: what each tells of the gradient
            noise, see `launch.training.averaging.noise_meter`.
        global_noise: float64 of shape ``(EXCHANGED,)``: its sum over all nodes.
    """

    def __init__(self, memory: Bytes, participants: int, parameters: int) -> None:
        shapes = _shapes(participants, parameters)
        starts = accumulate((_size(shape) for shape in shapes), initial=0)
        parts = [
            memory[start : start + _size(shape)].view(shape[0]).reshape(shape[1])
            for shape, start in zip(shapes, starts, strict=False)
        ]
        self.ready, self.done, self.summed, self.owners, self.buckets, *parts = parts
        self.losses, self.weights, self.waited_s, self.global_loss, *parts = parts
        self.noise, self.global_noise, *parts = parts
        self.kinds, self.global_kinds, self.waits_for_node, self.is_full = parts

    @staticmethod
    def num_bytes(participants: int, parameters: int) -> int:
        """Return the size of the memory."""
        return sum(map(_size, _shapes(participants, parameters)))


_Shape = tuple[type[np.generic], tuple[int, ...]]


def _shapes(participants: int, parameters: int) -> list[_Shape]:
    """List types and shapes, those of eight bytes first, so that each is aligned."""
    return [
        (np.int64, (participants, parameters)),
        (np.int64, (participants,)),
        (np.int64, (parameters,)),
        (np.int64, (parameters,)),
        (np.int64, (parameters,)),
        (np.float64, (participants,)),
        (np.float64, (participants,)),
        (np.float64, (participants,)),
        (np.float64, (2,)),
        (np.float64, (participants, EXCHANGED)),
        (np.float64, (EXCHANGED,)),
        (np.uint8, (participants, parameters)),
        (np.uint8, (parameters,)),
        (np.uint8, (participants,)),
        (np.uint8, (participants,)),
    ]


def _size(shape: _Shape) -> int:
    return int(np.dtype(shape[0]).itemsize * np.prod(shape[1]))
