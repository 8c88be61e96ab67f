"""Machines of an imagined lab, and the networks between them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import datetime

from planner.cluster.links import HostAllReduce, HostLink, MeasuredLinks
from probes.hardware import CoreLimit, Cpu, Gpu, Hardware, Memory, Speeds

_MACHINES = (
    ("atlas", "AMD EPYC 9554", 32, 256, 62.0, 118.0, 0),
    ("birch", "Intel Xeon Gold 6338", 16, 128, 48.0, 0.0, 0),
    ("cedar", "AMD Ryzen 9 7950X", 16, 64, 88.0, 160.0, 1),
    ("delta-01", "AMD EPYC 7763", 8, 64, 41.0, 0.0, 2),
    ("delta-02", "AMD EPYC 7763", 8, 64, 41.0, 0.0, 2),
    ("elm", "Intel Core i7-8700", 6, 32, 39.0, 0.0, 0),
)


def make_machine(number: int, text: str) -> Hardware:
    name, model, cores, memory_gib, gflops, bf16, gpus = _MACHINES[number % len(_MACHINES)]
    if number >= len(_MACHINES):
        name = f"{name}-{number // len(_MACHINES) + 1}"
    return Hardware(
        node=name + text,
        cpu=Cpu(
            architecture="x86_64",
            model=model + text,
            logical_cores=2 * cores,
            physical_cores=cores,
            sockets=1,
            numa_nodes=1,
            usable_cores=cores,
            core_ids=tuple(range(cores)),
            limits=(CoreLimit(source="affinity", cores=cores),),
            l1d_bytes=32 * 1024,
            l2_bytes=2**20,
            l3_bytes=2**25,
            instruction_sets=("avx2", "avx512", "avx512_bf16") if bf16 else ("avx2",),
        ),
        memory=Memory(
            total_bytes=memory_gib * 2**30, usable_bytes=memory_gib * 2**30, shm_bytes=2**33
        ),
        gpus=tuple(
            Gpu(
                nvml_index=index,
                cuda_index=index,
                name="NVIDIA RTX 6000 Ada" + text,
                uuid=f"GPU-{number}-{index}",
                memory_bytes=48 * 2**30,
            )
            for index in range(gpus)
        ),
        gpu_reason=None if gpus else "no NVIDIA driver",
        speeds=Speeds(
            fp32_one_core_flop_per_s=gflops * 1e9,
            fp32_all_cores_flop_per_s=0.83 * cores * gflops * 1e9,
            bf16_one_core_flop_per_s=bf16 * 1e9 or None,
            bf16_all_cores_flop_per_s=0.8 * cores * bf16 * 1e9 or None,
            copy_one_core_bytes_per_s=12e9 + 1e8 * number,
            copy_all_cores_bytes_per_s=min(cores * 9e9, 140e9) + 3e9 * number,
            jpeg_one_core_images_per_s=380.0 + 13 * number,
            host_to_device_bytes_per_s=24e9 if gpus else None,
        ),
    )


def speed_of(machine: Hardware, flop: float) -> float:
    """Give the samples per second of one core, by the operations that a sample takes."""
    return 0.7 * machine.speeds.fp32_one_core_flop_per_s / flop


def make_links(
    machines: Sequence[Hardware], chance: random.Random, measured_at: datetime
) -> MeasuredLinks:
    """Make what a measurement of the network between machines can give."""
    hosts = tuple(machine.node for machine in machines)
    links = tuple(
        HostLink(
            first=hosts[one],
            second=hosts[other],
            latency_s=chance.uniform(40e-6, 200e-6),
            bytes_per_s=chance.choice((1.16e8, 1.17e8, 1.1e9)),
        )
        for one in range(len(hosts))
        for other in range(one + 1, len(hosts))
    )
    sums = tuple(
        HostAllReduce(
            message_bytes=4**power * 4096,
            time_s=0.0004 + 4**power * 4096 * 2 / 1.16e8,
            cpu_s=tuple(0.0002 * 1.6**power for _ in hosts),
            interrupts_s=tuple(0.00005 * 1.5**power for _ in hosts),
            beside_s=0.0006 + 4**power * 4096 * 2.2 / 1.16e8,
        )
        for power in range(7)
    )
    return MeasuredLinks(
        hosts=hosts,
        fingerprints=tuple(machine.fingerprint() for machine in machines),
        measured_at=measured_at,
        links=links,
        sums=sums,
    )
