"""How far is the sum of one step's gradients? Block after block, as they become final."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from launch.exchange.block_order import BlockOrder
from launch.exchange.block_sum import BlockSum
from launch.exchange.board import Board
from launch.exchange.gradients import Block


class StepSum:
    """The sum of one step's gradients over all nodes.

    Args:
        board: Tells which gradients are final, and is told which sums are there.
        blocks: Of all gradients, in the order of a backward pass.
        adder: Adds up blocks, and has nothing else under way.
        order: In which they are started.
        number: Of the sum.
    """

    def __init__(
        self,
        board: Board,
        blocks: Sequence[Block],
        adder: BlockSum,
        order: BlockOrder,
        number: int,
    ) -> None:
        self._board = board
        self._blocks = blocks
        self._adder = adder
        self._order = order
        self._number = number
        self._ready = self._done = 0
        self._under_way: dict[int, Block] = {}
        self._missing = Counter(index for block in blocks for index in block.parameters)
        """Blocks of each parameter that are not summed yet."""
        without_elements = [i for i in range(len(board.summed)) if i not in self._missing]
        board.summed[without_elements] = number
        order.begin()

    @property
    def is_done(self) -> bool:
        """Whether all gradients are summed."""
        return self._done == len(self._blocks)

    @property
    def is_moving(self) -> bool:
        """Whether something may come from the other nodes."""
        return self._ready > self._done

    def go_on(self) -> bool:
        """Go on as far as can be without waiting; tell whether that was any farther."""
        before = (self._ready, self._adder.sent_bytes, self._done)
        while self._ready < len(self._blocks) and self._next_is_ready():
            self._ready += 1
        self._start()
        for flat in self._adder.finished():
            self._take(self._under_way.pop(id(flat)))
        return before != (self._ready, self._adder.sent_bytes, self._done)

    def _next_is_ready(self) -> bool:
        return self._blocks[self._ready].is_ready(self._board, self._number)

    def _start(self) -> None:
        while (chosen := self._order.next(self._ready, has_room=self._adder.has_room)) is not None:
            block = self._blocks[chosen]
            block.gather()
            self._under_way[id(block.flat)] = block
            self._adder.start(block.flat)

    def _take(self, block: Block) -> None:
        block.scatter()
        self._done += 1
        for index in block.parameters:
            self._missing[index] -= 1
            if not self._missing[index]:
                self._board.summed[index] = self._number
