"""What does a worker do about the other nodes? It marks its gradients, and waits for their sum."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from launch.exchange.board import DENSE, NO_GRADIENT, Board
from launch.exchange.forms import Held, TensorForm
from launch.training.handles import GroupHandles


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the peers of a node meet their rank, which is told of it."""

    board_offset: int
    """Of the `Board` in the group's memory, in bytes."""
    participants: int
    parameters: int
    held: list[Held]
    """What this process holds, filled by `Peers.offer`."""


class Peers:
    """The other nodes, seen by one who computes gradients: a worker, or a replica on a thread.

    A step is: `mark` for each gradient as it becomes final, then `sum_up`; or its two halves,
    between which the next step may begin with what is `summed` already.

    Args:
        board: Of this node.
        participant: Number of this one on the board.
        place: Takes note of what is offered.
        handles: By which the rank is woken, and lets go.
        offset_of: Gives the place of a tensor in the memory that the rank sees.
        model: Whole model, whose trained parameters count in their order.
    """

    def __init__(
        self,
        board: Board,
        participant: int,
        place: Place,
        handles: GroupHandles,
        offset_of: Callable[[Tensor], int],
        model: nn.Module,
    ) -> None:
        self._board = board
        self._participant = participant
        self._place = place
        self._handles = handles
        self._offset_of = offset_of
        self._index = {id(p): index for index, p in enumerate(trained_parameters(model))}
        self._marks = board.marks[participant]
        self._kinds = board.kinds[participant]
        self._sum = 1
        self._waited_s = 0.0

    def offer(self, parameter: nn.Parameter, gradient: Tensor) -> int:
        """Say where the gradients of a parameter will be, and their sum; give its number.

        Where several offer a place for one parameter, their gradients are added, and the sum over
        all nodes is left in the place of the first: participant 0's, or of the lowest number.

        Args:
            parameter: Of the model.
            gradient: In the group's shared memory, in the shape of the parameter.
        """
        index = self._index[id(parameter)]
        form = TensorForm.of(gradient)
        held = Held(
            index=index,
            participant=self._participant,
            offset=self._offset_of(gradient) if gradient.numel() else 0,
            form=form,
        )
        self._place.held.append(held)
        return index

    def mark(self, index: int) -> None:
        """Say that a gradient is final: the rank may add it up while others are computed."""
        self._marks[index] = self._sum
        os.eventfd_write(self._handles.wakeup, 1)

    def sum_up(
        self, loss: float, kinds: Sequence[int], indices: Sequence[int], *, is_full: bool
    ) -> float:
        """Wait for the sum over all nodes: `agree`, then `finish`."""
        mean_loss = self.agree(loss, kinds, indices, is_full=is_full)
        self.finish()
        return mean_loss

    def agree(
        self, loss: float, kinds: Sequence[int], indices: Sequence[int], *, is_full: bool
    ) -> float:
        """Say that each gradient is final, and wait until they are on all nodes.

        Their sums may still be on their way: see `summed` and `finish`.

        Args:
            loss: This one's part of the mean loss.
            kinds: Of its gradients in this step.
            indices: Which parameters these belong to.
            is_full: Whether the step was not the rest of an epoch, smaller than the others.

        Returns:
            The sum of the loss.
        """
        self._kinds[:] = 0
        self._kinds[np.asarray(indices, dtype=np.int64)] = kinds
        self._board.losses[self._participant] = loss
        self._board.is_full[self._participant] = is_full
        self._board.waited_s[self._participant], self._waited_s = self._waited_s, 0.0
        self._marks[:] = self._sum
        self._board.done[self._participant] = self._sum
        os.eventfd_write(self._handles.wakeup, 1)
        os.eventfd_read(self._handles.agreements[self._sum % 2])
        return float(self._board.loss_of_all[0])

    def summed(self) -> NDArray[np.bool_]:
        """Tell of every parameter, by its number, whether its sum is there, after `agree`."""
        return np.greater_equal(self._board.summed, self._sum)

    @contextmanager
    def waiting(self, *, for_node: bool) -> Iterator[None]:
        """Take note that this one waits in this context, instead of computing.

        Args:
            for_node: Whether for others of its node, and not for sums.
        """
        started = time.perf_counter()
        self._board.waits[self._participant] = for_node
        try:
            yield
        finally:
            self._board.waits[self._participant] = 0
            self._waited_s += time.perf_counter() - started

    def finish(self) -> None:
        """Wait for every sum. The gradients of the next step may be made after it."""
        os.eventfd_read(self._handles.sums[self._sum % 2])
        self._sum += 1

    def kinds_of_all(self, indices: Sequence[int]) -> list[int]:
        """Give the highest kind over all nodes of some gradients of the last sum."""
        kinds: list[int] = self._board.kinds_of_all[np.asarray(indices, dtype=np.int64)].tolist()
        return kinds

    def kinds_of(self, parameters: Sequence[nn.Parameter]) -> list[int]:
        """Give the same for parameters of the model, whoever offered them."""
        return self.kinds_of_all([self._index[id(parameter)] for parameter in parameters])


def trained_parameters(model: nn.Module) -> list[nn.Parameter]:
    """List the parameters that every node sums the gradients of, in the order that all agree on."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def kind_of(gradient: Tensor | None) -> int:
    """Give the kind of a gradient, as the board has it."""
    if gradient is None:
        return NO_GRADIENT
    return gradient.sparse_dim() if gradient.is_sparse else DENSE


def board_in(memory: Tensor, participants: int, parameters: int) -> Board:
    """Make a board in shared memory."""
    content = memory.numpy() if memory.dtype == torch.uint8 else memory.view(torch.uint8).numpy()
    return Board(content, participants, parameters)
