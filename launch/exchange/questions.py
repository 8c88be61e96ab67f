"""What does a worker ask its rank between steps? One question, with one answer for all workers.

The rank alone hears signals, other nodes and the clock. It answers when every worker of the node
has asked, and where there are several nodes when the workers of all have: so all do the same after
the same step.
"""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from launch.training.handles import QUESTION_BYTES, GroupHandles

_ANSWER_WORDS = 8
_MAX_NODES = 4096
_WINDOW_START = 1 << 16
WINDOW_BYTES = QUESTION_BYTES - _WINDOW_START
"""What `Question.SPREAD` can bring at a time."""


class Question(IntEnum):
    """What a worker may ask."""

    WHAT_NEXT = 1
    """A step is done: how to go on?"""

    IS_EQUAL = 2
    """Worker 0 has a digest: has every node the same?"""

    SPREAD = 3
    """The window holds some bytes of node 0's worker 0: give them to all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """How to go on after a step."""

    checkpoint: bool = False
    """Write one before anything else."""

    stop: bool = False
    """End in order, without the steps that are left."""

    node_batches: tuple[int, ...] | None = None
    """From the next step on, where they change."""


class _Block:
    """The words of questions and answers, as both sides see them."""

    def __init__(self, memory: int) -> None:
        region = mmap.mmap(memory, QUESTION_BYTES)
        words = np.frombuffer(region, np.int64, _WINDOW_START // 8)
        self.answer = words[:_ANSWER_WORDS]
        self.node_batches = words[_ANSWER_WORDS : _ANSWER_WORDS + _MAX_NODES]
        self.asked = words[_ANSWER_WORDS + _MAX_NODES :].reshape(-1, 4)
        self.window = np.frombuffer(region, np.uint8, WINDOW_BYTES, _WINDOW_START)


class Asking:
    """A worker's side."""

    def __init__(self, handles: GroupHandles, local_rank: int) -> None:
        self._handles = handles
        self._block = _Block(handles.memory)
        self._mine = self._block.asked[local_rank]
        self.window = self._block.window

    def what_next(self) -> Orders:
        """Ask for orders. Collective over the workers of the node, as the others are."""
        self._ask(Question.WHAT_NEXT)
        flags, changed = int(self._block.answer[0]), int(self._block.answer[1])
        batches = self._block.node_batches[:changed].tolist() if changed else None
        return Orders(
            checkpoint=bool(flags & 1),
            stop=bool(flags & 2),
            node_batches=None if batches is None else tuple(batches),
        )

    def is_equal(self, digest: int) -> bool:
        """Ask whether all nodes have the same digest.

        Args:
            digest: Of this node, below 2**63; only worker 0's is looked at.
        """
        self._ask(Question.IS_EQUAL, digest)
        return bool(self._block.answer[0])

    def spread(self, num_bytes: int) -> None:
        """Let the first bytes of the window become those of the first node's."""
        self._ask(Question.SPREAD, num_bytes)

    def _ask(self, question: Question, argument: int = 0) -> None:
        answers = self._handles.answers[int(self._mine[0]) % 2]
        self._mine[1:3] = question, argument
        self._mine[0] += 1
        os.eventfd_write(self._handles.wakeup, 1)
        os.eventfd_read(answers)


class Answering:
    """The rank's side."""

    def __init__(self, handles: GroupHandles, workers: int) -> None:
        self._handles = handles
        self._block = _Block(handles.memory)
        self._asked = self._block.asked[:workers]
        self._answered = 0
        self.window = self._block.window

    def question(self) -> tuple[Question, int] | None:
        """Give what all workers have asked, with worker 0's argument; ``None`` until they have."""
        if int(self._asked[:, 0].min()) == self._answered:
            return None
        return Question(int(self._asked[0, 1])), int(self._asked[0, 2])

    def missing(self) -> list[int]:
        """Give the workers that have not asked yet."""
        return [i for i, asked in enumerate(self._asked[:, 0]) if int(asked) == self._answered]

    def give_orders(self, orders: Orders) -> None:
        """Answer `Question.WHAT_NEXT`."""
        batches = orders.node_batches or ()
        self._block.node_batches[: len(batches)] = batches
        self._block.answer[:2] = orders.checkpoint + 2 * orders.stop, len(batches)
        self._let_go()

    def say(self, *, yes: bool) -> None:
        """Answer the other questions."""
        self._block.answer[0] = yes
        self._let_go()

    def _let_go(self) -> None:
        # In turn two of them, so that a quick worker cannot take the place of a slow one.
        os.eventfd_write(self._handles.answers[self._answered % 2], len(self._asked))
        self._answered += 1
