"""Samples of what a host uses, as a rank reports them."""

from __future__ import annotations

from typing import Any

from launch.reports import HostUsed, StepSums
from probes.sampling.host_sampler import HostUse

NO_STEPS = StepSums(steps=0, time_s=0.0, input_s=0.0, sync_s=0.0, samples=0, loss_sum=0.0)


def used(steps: StepSums = NO_STEPS, rank: int = 0, **changes: Any) -> HostUsed:
    values = {
        "elapsed_s": 1.0,
        "busy_cores": 1.0,
        "machine_busy_cores": 1.5,
        "io_wait_cores": 0.0,
        "received_bytes_per_s": 0.0,
        "sent_bytes_per_s": 0.0,
        "processes": 3,
        "threads": 9,
        "memory_bytes": 2**30,
    }
    return HostUsed(rank=rank, use=HostUse(**values | changes), steps=steps)


def steps(**changes: Any) -> StepSums:
    values = {"steps": 2, "time_s": 1.0, "input_s": 0.25, "sync_s": 0.5, "samples": 64}
    return StepSums(**{"loss_sum": 32.0, **values, **changes})
