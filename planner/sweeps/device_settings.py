"""Device settings of a sweep: so many workers or GPUs, with PyTorch's defaults."""

from __future__ import annotations

from collections.abc import Sequence

from launch.errors import InvalidPlanError
from launch.plan import Plan
from launch.strategies._gpus import cuda_devices, usable_gpus
from planner.quantities import format_count
from planner.sweeps.sweep_record import SweepSetting
from probes.hardware import Hardware


def make_device_settings(
    devices: Sequence[int], node: Hardware, *, least_batch: int | None = None
) -> list[SweepSetting]:
    """Make a setting of each number of devices.

    On GPUs as many processes with a GPU each, all cores between them. On a node without GPUs as
    many processes of one thread, each on a core of its own, which keep freed memory: given back
    to the kernel and faulted in again in each step, a batch of 8192 pictures of MNIST takes 1.7
    times as long, and the sweep would show that in place of the batch. All else is PyTorch's
    default.

    Args:
        devices: Numbers of them, ascending; none for 1, 2, 4 and so on, and all.
        node: This machine.
        least_batch: Smallest batch that they train: where ``devices`` names none, there are no more
            of them than it has samples.

    Raises:
        InvalidPlanError: It has fewer.
    """
    gpus = usable_gpus(node)
    cores = node.cpu.usable_cores
    most, what = (min(len(gpus), cores), "usable_gpus") if gpus else (cores, "usable_cores")
    chosen = devices or [
        count for count in _powers(most) if least_batch is None or count <= least_batch
    ]
    if chosen[-1] > most:
        raise InvalidPlanError(f"--devices has {chosen[-1]} and {what}={most}: use at most {most}")
    return [_make_setting(count, node) for count in chosen]


def _make_setting(count: int, node: Hardware) -> SweepSetting:
    if gpus := usable_gpus(node):
        plan = Plan(
            strategy="gpu_data",
            processes=count,
            replicas=count,
            threads_per_process=node.cpu.usable_cores // count,
            devices=cuda_devices(gpus[:count]),
            node_batch=count,
        )
        return SweepSetting(label=format_count(count, "GPU"), plan=plan)
    plan = Plan(
        strategy="sequential" if count == 1 else "processes",
        processes=count,
        replicas=count,
        node_batch=count,
        allocator="retain",
    )
    return SweepSetting(label=format_count(count, "worker"), plan=plan)


def _powers(most: int) -> list[int]:
    """Give 1, 2, 4 and so on below a number, and the number."""
    return sorted({*(1 << power for power in range(most.bit_length())), most})
