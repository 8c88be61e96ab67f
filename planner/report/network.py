"""What did averaging between the nodes take? Bytes and waiting of a step, and changes of shares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from launch.workers.reports import Exchanged, Report, SharesChanged, StepDone
from planner.report.units import format_bytes


class NetworkRecord:
    """Adds up what the first node says of the network."""

    def __init__(self) -> None:
        self._steps = 0
        self._sent_bytes = 0
        self._waited_s = 0.0
        self._steps_s = 0.0

    def add(self, report: Report) -> None:
        """Take note of a report; most have nothing of the network."""
        match report:
            case Exchanged():
                self._steps += report.steps
                self._sent_bytes += report.sent_bytes
                self._waited_s += report.waited_s
            case StepDone():
                self._steps_s += report.time_s

    def line(self) -> str | None:
        """Say it for people; ``None`` where nothing went over a network."""
        if not self._steps:
            return None
        sent = format_bytes(self._sent_bytes // self._steps)
        share = 100 * self._waited_s / self._steps_s if self._steps_s else 0.0
        return f"{sent} sent by each node in a step, {share:.1f} % of the time waited for the sum"

    def to_json(self) -> dict[str, Any] | None:
        """Give the same as plain values that JSON can hold."""
        if not self._steps:
            return None
        return {
            "steps": self._steps,
            "sent_bytes_per_step": self._sent_bytes / self._steps,
            "waited_s_per_step": self._waited_s / self._steps,
        }


def shares_line(changed: SharesChanged, hosts: Sequence[str]) -> str:
    """Say which shares the nodes take from now on."""
    shares = ", ".join(
        f"{host} {batch}" for host, batch in zip(hosts, changed.node_batches, strict=True)
    )
    return f"step {changed.step}: a node's speed has changed; from here on {shares} samples a step"
