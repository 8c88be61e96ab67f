"""Who answers the workers between steps, where their node is the only one? A thread of its rank."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from launch.exchange.forms import Held
from launch.exchange.questions import Answering, Orders, Question
from launch.training.handles import GroupHandles

_LOOK_UP_S = 1.0
CHECKPOINT, STOP = 1, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Laid:
    """Where the workers of a node have put their gradients, and of how much data they will be."""

    board_offset: int
    participants: int
    parameters: int
    held: Sequence[Held]
    training_samples: int
    validation_samples: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SumTimes:
    """How a step went on the network, as this rank saw it."""

    computed_s: tuple[float, ...]
    """Of each node: from the begin of the step until its last gradient was final."""
    waited_s: float
    """What this node waited for others instead of computing."""
    sent_bytes: int
    """By this rank."""
    node_batches: tuple[int, ...] | None
    """From the next step on, where they change."""


class StepServer:
    """Answers the workers of one node.

    Args:
        handles: Of the workers.
        workers: Their number.
        on_sum: Is told of each sum over the nodes, in the server's thread.
    """

    def __init__(
        self,
        handles: GroupHandles,
        workers: int,
        on_sum: Callable[[SumTimes], None] = lambda _: None,
    ) -> None:
        self._on_sum = on_sum
        self._handles = handles
        self._workers = workers
        self._answering = Answering(handles, workers)
        self._wishes = 0
        self._is_closed = False
        self.steps = 0
        """Steps that the workers have made."""
        self.answered_at = time.monotonic()
        """When the workers last were answered."""
        self.is_waiting = False
        """Whether this node has done its part of a step and waits for others."""

    def lay_out(self, laid: Laid) -> None:
        """Say where the gradients will be, once all workers have said so."""
        return

    def wish(self, *, checkpoint: bool = False, stop: bool = False) -> None:
        """Want something done after the next step, by all nodes."""
        self._wishes |= checkpoint * CHECKPOINT | stop * STOP
        self._wake()

    def late_workers(self) -> list[int]:
        """Give the workers that the others of this node wait for; empty where nobody can tell."""
        late = self._answering.missing()
        return late if len(late) < self._workers else []

    def close(self) -> None:
        """End `run`, which may be in the middle of anything."""
        self._is_closed = True
        self._wake()

    def run(self) -> None:
        """Serve the workers until `close`; the body of a thread."""
        while not self._is_closed:
            if not self._serve():
                self._sleep(self._look_s)

    @property
    def _look_s(self) -> float:
        """Longest sleep while there is nothing to do."""
        return _LOOK_UP_S

    def _serve(self) -> bool:
        """Do what there is to do; tell whether there was anything."""
        asked = self._answering.question()
        if asked is not None:
            self._answer(*asked)
        return asked is not None

    def _answer(self, question: Question, argument: int) -> None:
        if question is Question.WHAT_NEXT:
            self.steps += 1
            orders = self._next_orders()
            self.answered_at = time.monotonic()
            self._answering.give_orders(orders)
        else:
            self.answered_at = time.monotonic()
            self._answering.say(yes=True)  # the only node has the model of all

    def _next_orders(self) -> Orders:
        wishes, self._wishes = self._wishes, 0
        return orders_of(wishes)

    def _sleep(self, limit_s: float) -> None:
        """Sleep until a worker writes to the wake-up descriptor, or for so long."""
        if select.select([self._handles.wakeup], [], [], limit_s)[0]:
            os.eventfd_read(self._handles.wakeup)

    def _wake(self) -> None:
        os.eventfd_write(self._handles.wakeup, 1)


def orders_of(wishes: int, node_batches: tuple[int, ...] | None = None) -> Orders:
    """Give the orders that do what was wished for."""
    return Orders(
        checkpoint=bool(wishes & CHECKPOINT),
        stop=bool(wishes & STOP),
        node_batches=node_batches,
    )
