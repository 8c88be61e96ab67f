"""Communication statistics, reported once a second."""

from __future__ import annotations

import time
from collections.abc import Callable

from launch.gradient_sync.node_channel.step_server import StepSyncTimes
from launch.reports import GradientsSynced, Report, SharesChanged

_INTERVAL_S = 1.0


class CommunicationStatistics:
    """Adds up the costs of a job's sums, and reports them."""

    def __init__(self, send_report: Callable[[Report], None]) -> None:
        self._send_report = send_report
        self._all_steps = 0
        self._flushed_at = time.monotonic()
        self._clear()

    def __call__(self, sum_: StepSyncTimes) -> None:
        """Record a step."""
        self._steps += 1
        self._all_steps += 1
        self._sent_bytes += sum_.sent_bytes
        self._waited_s += sum_.waited_s
        if sum_.node_batches is not None:
            self._send_report(
                SharesChanged(
                    step=self._all_steps,
                    node_batches=sum_.node_batches,
                    computed_s=sum_.computed_s,
                )
            )
        if time.monotonic() >= self._flushed_at + _INTERVAL_S:
            self.flush()

    def flush(self) -> None:
        """Report what has been recorded since the last report."""
        if self._steps:
            sent, waited_s = self._sent_bytes, self._waited_s
            self._send_report(
                GradientsSynced(steps=self._steps, sent_bytes=sent, waited_s=waited_s)
            )
        self._flushed_at = time.monotonic()
        self._clear()

    def _clear(self) -> None:
        self._steps, self._sent_bytes, self._waited_s = 0, 0, 0.0
