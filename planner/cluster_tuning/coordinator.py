"""Coordinator on rank 0: passes reports on, and lets equal nodes share a search."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from launch.plan import Plan
from launch.reports import Report
from planner.cluster_tuning.reports import (
    CaseDescribed,
    ConfirmPlans,
    LeadSearch,
    MeasureNetwork,
    NodeDone,
    NodeFailed,
    NodeReport,
    PlansFound,
)


class Coordinator:
    """Hears every node and tells it when to go on.

    A node whose hardware is that of another one waits for the plan that this one finds. Where it
    finds none, the next of them searches in its place.

    Args:
        leaders: For each rank the one that searches for it.
        message_bytes: Sizes of the all-reduces to time, beside that of the model's gradients.
        send_report: Takes what the starting process should hear.
        send_to_node: Takes what a node should hear.
    """

    def __init__(
        self,
        leaders: Sequence[int],
        message_bytes: Sequence[int],
        send_report: Callable[[Report], None],
        send_to_node: Callable[[int, Report], None],
    ) -> None:
        self._leaders = list(leaders)
        self._sizes = set(message_bytes)
        self._send_report = send_report
        self._send_to_node = send_to_node
        self._at_work = set(range(len(leaders)))

    def receive(self, rank: int, report: Report) -> None:
        """Receive a node's report: pass it on, and give other nodes what it means for them."""
        match report:
            case PlansFound(plans=plans):
                self._hand_plans_on(rank, plans)
                return
            case CaseDescribed(facts=facts):
                self._sizes.add(facts.parameter_bytes)
        self._send_report(NodeReport.of(rank, report))
        if isinstance(report, NodeDone | NodeFailed) and rank in self._at_work:
            self._at_work.discard(rank)
            if isinstance(report, NodeFailed):
                self._hand_plans_on(rank, ())
            if not self._at_work:
                self._finish()

    def _hand_plans_on(self, rank: int, plans: tuple[Plan, ...]) -> None:
        """Let nodes that wait for this one confirm its plans; without any, one of them searches."""
        waiting = [
            other
            for other, leader in enumerate(self._leaders)
            if leader == rank and other != rank and other in self._at_work
        ]
        for other in waiting:
            # Whatever this node does from here on is no matter of theirs.
            self._leaders[other] = other if plans else waiting[0]
            if plans:
                self._send_to_node(other, ConfirmPlans(plans=plans))
        if waiting and not plans:
            self._send_to_node(waiting[0], LeadSearch())

    def _finish(self) -> None:
        for rank in range(len(self._leaders)):
            self._send_to_node(rank, MeasureNetwork(message_bytes=tuple(sorted(self._sizes))))
