"""How does a rank take part in the steps of its node? In one thread, which alone waits for MPI.

It adds up gradients over the nodes as they become final, and answers what the workers ask between
steps. It never spins: while the workers compute it sleeps until one of them writes to the wake-up
descriptor, and while something is on its way until a connection tells of it, or for a moment.
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from launch.exchange.agreement import Agreement
from launch.exchange.arrivals import Arrivals
from launch.exchange.block_order import BlockOrder, FixedOrder, agree_on_order
from launch.exchange.board import Board
from launch.exchange.gradients import Block, Parameter, cut
from launch.exchange.looks import Looks
from launch.exchange.questions import Orders, Question
from launch.exchange.ring import RingSum
from launch.exchange.rounded import RoundedSum
from launch.exchange.same_data import compare_data
from launch.exchange.same_model import compare_models
from launch.exchange.server import Laid, StepServer, SumTimes, orders_of
from launch.exchange.step_sum import StepSum
from launch.share_keeper import ShareKeeper
from launch.training.handles import GroupHandles

_LOOK_S = 0.0005
"""Between two looks for an answer of the other ranks while nothing else is done."""


@dataclass(slots=True)
class _Step:
    """A step whose sum is under way."""

    sum: StepSum
    sent_before: int
    """Bytes that this rank had sent."""
    computed_at: float | None = None
    """When the last gradient of this node was final."""
    waited_s: float = 0.0
    """What its workers had waited for the sums of the step before."""
    agreement: Agreement | None = None
    is_agreeing: bool = True
    """Whether some node has not computed its gradients, or has not said so."""
    went_on_at: float | None = None
    """When the workers went on to the next step, where they could before the sum was done."""
    node_batches: tuple[int, ...] | None = None


class Exchange(StepServer):
    """A rank's part in the steps of a job of several nodes.

    Args:
        comm: All ranks of the job; nothing else may use it from now on.
        handles: Of this node's workers.
        workers: Their number.
        on_sum: Is told of each sum, in the exchange's thread.
        hosts: Names of the nodes, by rank.
        keeper: Changes the shares, ``None`` where they stay as they are.
        is_rounded: Whether gradients are rounded to 16 bits on the way.
    """

    def __init__(
        self,
        comm: MPI.Comm,
        handles: GroupHandles,
        workers: int,
        on_sum: Callable[[SumTimes], None] = lambda _: None,
        *,
        hosts: Sequence[str],
        keeper: ShareKeeper | None = None,
        is_rounded: bool = False,
    ) -> None:
        super().__init__(handles, workers, on_sum)
        self._comm = comm
        self._hosts = hosts
        self._keeper = keeper
        self._adder = RoundedSum(comm) if is_rounded else RingSum(comm)
        self._laid: Laid | None = None
        self._board: Board | None = None
        self._blocks: list[Block] = []
        self._number = 1
        self._order: BlockOrder = FixedOrder()
        self._step: _Step | None = None
        self._looks = Looks()
        self._arrivals = Arrivals(handles.wakeup)
        self._orders = Orders()
        self._is_odd_step = True
        """Whether the workers do more in this step than in others: they begin an epoch, or read
        other shares."""

    def lay_out(self, laid: Laid) -> None:
        self._laid = laid
        self._wake()

    def late_workers(self) -> list[int]:
        if self._board is None or len(self._board.done) != self._workers:
            return super().late_workers()
        for is_late in (np.less(self._board.done, self._number), self._board.waits == 0):
            late: list[int] = np.flatnonzero(is_late).tolist()
            if 0 < len(late) < self._workers:
                return late
        return super().late_workers()

    def run(self) -> None:
        super().run()
        self._order.close()

    def _sleep(self, limit_s: float) -> None:
        if self._is_expecting:
            self._arrivals.sleep(self._looks.pause_s)
        else:
            super()._sleep(limit_s)

    @property
    def _is_expecting(self) -> bool:
        """Whether something may come from the other nodes."""
        step = self._step
        if step is None:
            return False
        return step.sum.is_moving or (step.agreement is not None and step.is_agreeing)

    def _serve(self) -> bool:
        if self._laid is not None:
            laid, self._laid = self._laid, None
            self.is_waiting = True
            self._prepare(laid)
            self.is_waiting = False
            return True
        if self._board is None:
            return False  # questions come later: the ranks must all do the same in the same order
        has_moved = self._go_on(self._board)
        return super()._serve() or has_moved

    def _prepare(self, laid: Laid) -> None:
        memory = np.frombuffer(mmap.mmap(self._handles.memory, 0), np.uint8)
        parameters = Parameter.all_from(laid.held, laid.parameters)
        counts = {"training": laid.training_samples, "validation": laid.validation_samples}
        compare_data(self._comm, counts, self._hosts)
        is_alike = compare_models(self._comm, parameters, self._hosts)
        self._blocks = cut(parameters, is_alike, memory)
        if len(self._blocks) > self._adder.most:
            self._order = agree_on_order(self._comm, len(self._blocks))
        self._board = Board(memory[laid.board_offset :], laid.participants, laid.parameters)

    def _answer(self, question: Question, argument: int) -> None:
        # After a step the workers go on, perhaps until they need what is still being summed.
        self.is_waiting = question is not Question.WHAT_NEXT or self._step is not None
        match question:
            case Question.WHAT_NEXT:
                super()._answer(question, argument)
                if self._step is not None:
                    self._step.went_on_at = self.answered_at
                return
            case Question.IS_EQUAL:
                digests = self._from_all(np.array([argument], np.int64))
                yes = bool((digests == digests[0]).all())
            case Question.SPREAD:
                window = self._answering.window[:argument]
                self._wait(self._comm.Ibcast([window, argument, MPI.BYTE]))
                yes = True
        self._is_odd_step = True
        self.is_waiting = False
        self.answered_at = time.monotonic()
        self._answering.say(yes=yes)

    def _next_orders(self) -> Orders:
        orders, self._orders = self._orders, Orders()
        self._is_odd_step = orders != Orders()
        return orders

    def _go_on(self, board: Board) -> bool:
        """Go on with a step's sum as far as can be without waiting; tell whether it did."""
        if self._step is None:
            if int(board.marks.max()) < self._number:
                return False
            sum_ = StepSum(board, self._blocks, self._adder, self._order, self._number)
            self._step = _Step(sum_, self._adder.sent_bytes)
        step = self._step
        has_moved = step.sum.go_on()
        self._looks.note(has_moved=has_moved)
        if step.computed_at is None and int(board.done.min()) >= self._number:
            self._begin_to_agree(step, board)
        if step.is_agreeing and step.agreement is not None and step.agreement.is_done():
            self._agree(step, step.agreement)
            has_moved = True
        if step.sum.is_done and step.agreement is not None and not step.is_agreeing:
            self._end(step, step.agreement)
            has_moved = True
        self._arrivals.note(has_moved=has_moved)
        return has_moved

    def _begin_to_agree(self, step: _Step, board: Board) -> None:
        step.computed_at = time.monotonic()
        step.waited_s = float(board.waited_s.min())
        self.is_waiting = True
        computed_s = step.computed_at - self.answered_at - step.waited_s
        wishes, self._wishes = self._wishes, 0
        step.agreement = Agreement(self._comm, board, computed_s, wishes)

    def _agree(self, step: _Step, agreement: Agreement) -> None:
        """Let the workers go on that can do so without all the sums."""
        step.is_agreeing = False
        is_like_others = agreement.is_full and not self._is_odd_step
        if self._keeper is not None and is_like_others:
            step.node_batches = self._keeper.add(agreement.computed_s)
        self._orders = orders_of(agreement.wishes, step.node_batches)
        self._let_go(self._handles.agreements)

    def _end(self, step: _Step, agreement: Agreement) -> None:
        self._step = None
        self.is_waiting = False
        self._let_go(self._handles.sums)
        self._number += 1
        assert step.computed_at is not None, "it ends after it was computed"
        waited_until = step.went_on_at or time.monotonic()
        self._on_sum(
            SumTimes(
                computed_s=agreement.computed_s,
                waited_s=step.waited_s + waited_until - step.computed_at,
                sent_bytes=self._adder.sent_bytes - step.sent_before,
                node_batches=step.node_batches,
            )
        )

    def _let_go(self, semaphores: tuple[int, int]) -> None:
        assert self._board is not None, "workers wait after it was laid out"
        os.eventfd_write(semaphores[self._number % 2], len(self._board.done))

    def _from_all(self, values: NDArray[Any]) -> NDArray[Any]:
        """Give the values of every rank, one row each."""
        rows = np.empty((self._comm.size, len(values)), values.dtype)
        self._wait(self._comm.Iallgather(values, rows))
        return rows

    def _wait(self, request: MPI.Request) -> None:
        while not request.Test() and not self._is_closed:
            time.sleep(_LOOK_S)
