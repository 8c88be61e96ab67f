"""What does rank 0 do with what the nodes say? It passes it on, and lets equal nodes share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from launch.case_facts import CaseFacts
from launch.workers.reports import Report
from planner.together.reports import (
    CaseLearnt,
    Confirm,
    Finish,
    FromNode,
    Lead,
    NodeDone,
    NodeFailed,
    PlansFound,
)


class Coordinator:
    """Hears every node and tells it when to go on.

    A node whose hardware is that of another one waits for the plan that this one finds. Where it
    finds none, the next of them searches in its place.

    Args:
        leaders: For each rank the one that searches for it.
        message_bytes: Sizes of the all-reduces to time, beside that of the model's gradients.
        say: Takes what the starting process should hear.
        tell: Takes what a node should hear.
    """

    def __init__(
        self,
        leaders: Sequence[int],
        message_bytes: Sequence[int],
        say: Callable[[Report], None],
        tell: Callable[[int, Report], None],
    ) -> None:
        self._leaders = list(leaders)
        self._sizes = set(message_bytes)
        self._say = say
        self._tell = tell
        self._at_work = set(range(len(leaders)))

    def hear(self, rank: int, report: Report) -> None:
        """Take what a node says."""
        match report:
            case PlansFound(plans=plans):
                self._spread(rank, plans)
                return
            case CaseLearnt(facts=facts):
                self._sizes.add(CaseFacts.from_json(facts).parameter_bytes)
        self._say(FromNode.of(rank, report))
        if isinstance(report, NodeDone | NodeFailed) and rank in self._at_work:
            self._at_work.discard(rank)
            if isinstance(report, NodeFailed):
                self._spread(rank, ())
            if not self._at_work:
                self._finish()

    def _spread(self, rank: int, plans: Sequence[Mapping[str, Any]]) -> None:
        """Let those who wait for this node confirm what it found, or search in its place."""
        waiting = [
            other
            for other, leader in enumerate(self._leaders)
            if leader == rank and other != rank and other in self._at_work
        ]
        for other in waiting:
            # Whatever this node does from here on is no matter of theirs.
            self._leaders[other] = other if plans else waiting[0]
            if plans:
                self._tell(other, Confirm(plans=plans))
        if waiting and not plans:
            self._tell(waiting[0], Lead())

    def _finish(self) -> None:
        for rank in range(len(self._leaders)):
            self._tell(rank, Finish(message_bytes=sorted(self._sizes)))
