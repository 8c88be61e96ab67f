"""Usage of a node while it trains: sampled where its rank watches the workers, and reported."""

from __future__ import annotations

import os
from collections.abc import Callable

from launch.gradient_sync.node_channel.step_server import StepSyncTimes
from launch.job import Job
from launch.reports import HostUsed, Report, StepDone, StepSums
from probes.sampling.host_sampler import HostSampler

EVERY_S, _MOST_REPORTS_PER_S = 1.0, 64
"""Of one node, and of all nodes: rank 0's host passes them on to whoever started the job."""


class UsageReporter:
    """Reports about once a second what a node uses, and what its steps wait for.

    Use it in a ``with`` block.
    """

    def __init__(self, job: Job, rank: int, send_report: Callable[[Report], None]) -> None:
        self._rank = rank
        self._send_report = send_report
        self._sampler = HostSampler(
            os.getpid(),
            gpu_uuids=job.nodes[rank].gpu_uuids,
            every_s=max(EVERY_S, len(job.nodes) / _MOST_REPORTS_PER_S),
        )
        self._steps: list[StepDone] = []
        self._sync_s = self._reported_sync_s = 0.0
        """Totals, as another thread adds to the first one."""

    def __enter__(self) -> UsageReporter:
        return self

    def __exit__(self, *_: object) -> None:
        self._sampler.close()

    def add_step(self, step: StepDone) -> None:
        """Add a step of the first worker."""
        self._steps.append(step)

    def add_sync(self, times: StepSyncTimes) -> None:
        """Add what the node waited for others."""
        self._sync_s += times.waited_s

    def poll(self, *, is_last: bool = False) -> None:
        """Report, where that is due or the last time."""
        if (use := self._sampler.poll(is_last=is_last)) is None:
            return
        done, self._steps = self._steps, []
        sync_s = self._sync_s
        noises = [step.noise.scale for step in done if step.noise is not None]
        steps = StepSums(
            steps=len(done),
            time_s=sum(step.time_s for step in done),
            input_s=sum(step.input_s for step in done),
            sync_s=sync_s - self._reported_sync_s,
            samples=sum(step.samples for step in done),
            loss_sum=sum(step.loss * step.samples for step in done),
            noise_scale=noises[-1] if noises else None,
        )
        self._reported_sync_s = sync_s
        self._send_report(HostUsed(rank=self._rank, use=use, steps=steps))
