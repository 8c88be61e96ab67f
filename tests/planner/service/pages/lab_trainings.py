"""Trainings of an imagined lab, epoch by epoch, and the progress of a search."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace

from launch.plan import Plan
from launch.reports import EpochDone
from planner.plans.stored_plan import StoredPlan
from planner.records.progress import ContenderStanding, SearchProgress
from planner.records.usage_record import GpuUsage, HostUsage, UsageCurve
from probes.hardware import Hardware
from probes.timing import Interval


def make_epoch(chance: random.Random, count: int, rate: float, stored: StoredPlan) -> EpochDone:
    loss = 1.1 * math.exp(-count / 14) + 0.12 + chance.gauss(0, 0.008)
    samples = 6003
    measured = rate * math.exp(chance.gauss(-0.03, 0.03))
    return EpochDone(
        epoch=count,
        train_loss=loss,
        validation_loss=loss + 0.05 + 0.002 * count + abs(chance.gauss(0, 0.012)),
        metrics={"accuracy": 1 - 0.6 * math.exp(-count / 11)},
        samples=samples,
        train_time_s=samples / measured,
        validation_time_s=0.1 * samples / measured,
        throughput_samples_per_s=measured,
        learning_rates=(0.01,),
        global_batch=stored.plan.node_batch,
        elapsed_s=count * 1.1 * samples / measured,
    )


def make_usage(
    chance: random.Random, machines: Sequence[Hardware], rate: float
) -> dict[str, HostUsage]:
    """Give the use of each host, as a training stores it."""
    times = tuple(float(second) for second in range(2, 2 + 4 * 150, 4))

    def curve(level: float, spread: float = 0.05, *, dips: bool = True) -> UsageCurve:
        values = []
        for number in range(len(times)):
            dip = 0.3 if dips and number % 37 > 33 else 1.0
            values.append(max(0.0, level * dip * math.exp(chance.gauss(0, spread))))
        mean = tuple(float(f"{value:.4g}") for value in values)
        return UsageCurve(mean=mean, maximum=tuple(1.1 * value for value in mean))

    found = {}
    for number, machine in enumerate(machines):
        is_first = number == 0
        cores = machine.cpu.usable_cores
        losses = tuple(1.1 * math.exp(-n / 60) + 0.13 for n in range(len(times)))
        found[machine.node] = HostUsage(
            time_s=times,
            busy_cores=curve(0.93 * cores),
            machine_busy_cores=curve(0.96 * cores),
            io_wait_cores=curve(0.02, 0.9),
            processes=curve(5, 0, dips=False),
            threads=curve(5 * cores, 0, dips=False),
            memory_bytes=curve(4.2 * 2**30, 0.01, dips=False),
            received_bytes_per_s=curve(8.8e7, 0.1),
            sent_bytes_per_s=curve(8.6e7, 0.1),
            input_wait=curve(0.03, 0.5),
            sync_wait=curve(0.11, 0.2) if len(machines) > 1 else None,
            loss=UsageCurve(mean=losses, maximum=losses) if is_first else None,
            samples_per_s=curve(rate) if is_first else None,
            gpus=tuple(
                GpuUsage(
                    uuid=gpu.uuid or "",
                    utilisation=curve(0.9),
                    memory_bytes=curve(31 * 2**30, 0.0, dips=False),
                    power_w=curve(240, 0.06),
                )
                for gpu in machine.gpus
            ),
        )
    return found


def make_race(text: str) -> SearchProgress:
    """Make the progress of a search whose plans take turns."""
    first = Plan(
        strategy="processes",
        node_batch=256,
        processes=4,
        threads_per_process=2,
        replicas=4,
        memory_format="channels_last",
        allocator="retain",
    )
    threads = Plan(strategy="threads", node_batch=256, threads_per_process=8)
    slower = "slower than the leader with 97.5 %" + text
    plans = [
        (first, 418.2, None, True, None),
        (replace(first, allocator="default"), 402.0, (0.961, 0.944, 0.979), False, None),
        (replace(first, node_batch=128), 409.7, (0.98, 0.951, 1.01), False, None),
        (threads, 311.5, (0.745, 0.73, 0.762), False, slower),
    ]
    return SearchProgress(
        doing="racing 3 plans, round 14",
        budget_s=300.0,
        left_s=112.0,
        trials=31,
        best_samples_per_s=418.2,
        trial=first,
        standings=tuple(
            ContenderStanding(
                plan=plan,
                throughput_samples_per_s=rate,
                speedup=ratio and Interval(median=ratio[0], low=ratio[1], high=ratio[2], count=14),
                is_leading=leads,
                reason=reason,
            )
            for plan, rate, ratio, leads, reason in plans
        ),
    )
