"""How does a rank take part in the steps of its node? In one thread, which alone waits for MPI.

It adds up gradients over the nodes as they become final, and answers what the workers ask between
steps. It never spins: while the workers compute it sleeps until one of them writes to the wake-up
descriptor, and while something is on its way it looks for it every half millisecond.
"""

from __future__ import annotations

import mmap
import os
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from launch.exchange.board import Board
from launch.exchange.gradients import Block, Parameter, cut
from launch.exchange.questions import Orders, Question
from launch.exchange.ring import RingSum
from launch.exchange.rounded import RoundedSum
from launch.exchange.same_model import compare_models
from launch.exchange.server import Laid, StepServer, SumTimes, orders_of
from launch.share_keeper import ShareKeeper
from launch.training.handles import GroupHandles

_LOOK_S = 0.0005
"""Sleep between two looks at what is on its way. At 1 Gb/s a look every 0.1 to 1 ms kept the link
full; 0.5 ms took 16 % of a core beside it, 0.1 ms a third."""

_LOOK_UP_S = 1.0


class Exchange(StepServer):
    """A rank's part in the steps of a job of several nodes.

    Args:
        comm: All ranks of the job; nothing else may use it from now on.
        handles: Of this node's workers.
        workers: Their number.
        on_sum: Is told of each sum, in the exchange's thread.
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
        keeper: ShareKeeper | None = None,
        is_rounded: bool = False,
    ) -> None:
        super().__init__(handles, workers, on_sum)
        self._comm = comm
        self._keeper = keeper
        self._adder = RoundedSum(comm) if is_rounded else RingSum(comm)
        self._laid: Laid | None = None
        self._board: Board | None = None
        self._blocks: list[Block] = []
        self._number = 1
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
        done = self._board.done.tolist()
        late = [worker for worker, number in enumerate(done) if number < self._number]
        return late if 0 < len(late) < self._workers else super().late_workers()

    def _serve(self) -> bool:
        if self._laid is not None:
            laid, self._laid = self._laid, None
            self.is_waiting = True
            self._prepare(laid)
            self.is_waiting = False
            return True
        if self._board is None:
            return False  # questions come later: the ranks must all do the same in the same order
        if int(self._board.marks.max()) >= self._number:
            self._sum(self._board)
            return True
        return super()._serve()

    def _prepare(self, laid: Laid) -> None:
        memory = np.frombuffer(mmap.mmap(self._handles.memory, 0), np.uint8)
        parameters = Parameter.all_from(laid.held, laid.parameters)
        self._blocks = cut(parameters, compare_models(self._comm, parameters), memory)
        self._board = Board(memory[laid.board_offset :], laid.participants, laid.parameters)

    def _answer(self, question: Question, argument: int) -> None:
        self.is_waiting = question is not Question.WHAT_NEXT
        match question:
            case Question.WHAT_NEXT:
                super()._answer(question, argument)
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

    def _sum(self, board: Board) -> None:
        """Add up the gradients of one step."""
        sent_before = self._adder.sent_bytes
        computed_at: float | None = None
        waiting = deque(self._blocks)
        under_way: dict[int, Block] = {}
        while waiting or under_way or computed_at is None:
            if computed_at is None and int(board.done.min()) >= self._number:
                computed_at = time.monotonic()
                self.is_waiting = True
            while waiting and self._adder.has_room and waiting[0].is_ready(board, self._number):
                block = waiting.popleft()
                block.gather()
                under_way[id(block.flat)] = block
                self._adder.start(block.flat)
            finished = self._adder.finished()
            for flat in finished:
                under_way.pop(id(flat)).scatter()
            if not finished:
                self._sleep(_LOOK_S if under_way else _LOOK_UP_S)
            if self._is_closed:
                return
        said = self._exchange_small(board, computed_at - self.answered_at)
        computed_s = tuple(said[:, 1].tolist())
        batches = None
        if self._keeper is not None and not self._is_odd_step:
            batches = self._keeper.add(computed_s)
        self._orders = orders_of(int(np.bitwise_or.reduce(said[:, 2].astype(np.int64))), batches)
        self._let_go(board)
        self._on_sum(
            SumTimes(
                computed_s=computed_s,
                waited_s=time.monotonic() - computed_at,
                sent_bytes=self._adder.sent_bytes - sent_before,
                node_batches=batches,
            )
        )

    def _exchange_small(self, board: Board, computed_s: float) -> NDArray[Any]:
        """Give every rank's loss, time and wishes, and the board what belongs to all nodes."""
        wishes, self._wishes = self._wishes, 0
        kinds = board.kinds.max(0)
        highest = np.empty_like(kinds)
        summed = self._comm.Iallreduce(kinds, highest, MPI.MAX)
        said = self._from_all(np.array([board.losses.sum(), computed_s, wishes]))
        self._wait(summed)
        board.kinds_of_all[:] = highest
        # In the order of the ranks: the same on each of them, to the last bit.
        board.loss_of_all[0] = said[:, 0].sum()
        return said

    def _let_go(self, board: Board) -> None:
        self.is_waiting = False
        number, self._number = self._number, self._number + 1
        os.eventfd_write(self._handles.sums[number % 2], len(board.done))

    def _from_all(self, values: NDArray[Any]) -> NDArray[Any]:
        """Give the values of every rank, one row each."""
        rows = np.empty((self._comm.size, len(values)), values.dtype)
        self._wait(self._comm.Iallgather(values, rows))
        return rows

    def _wait(self, request: MPI.Request) -> None:
        while not request.Test() and not self._is_closed:
            time.sleep(_LOOK_S)
