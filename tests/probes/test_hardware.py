from dataclasses import replace

import pytest

from probes import codec
from probes.hardware import (
    CoreLimit,
    Cpu,
    Gpu,
    GpuLink,
    GpuProcess,
    Hardware,
    Memory,
    MemoryLimit,
    NetworkInterface,
    Speeds,
)

GIB = 2**30


def cpu(**changes) -> Cpu:
    values = {
        "architecture": "x86_64",
        "model": "EPYC 9354",
        "logical_cores": 8,
        "physical_cores": 4,
        "sockets": 1,
        "numa_nodes": 1,
        "usable_cores": 4,
        "core_ids": (0, 1, 2, 3),
        "limits": (
            CoreLimit(source="online cores", cores=8),
            CoreLimit(source="affinity", cores=4),
            CoreLimit(source="Slurm (SLURM_CPUS_ON_NODE)", cores=4),
        ),
        "instruction_sets": ("avx2", "avx512"),
    }
    return Cpu(**values | changes)


def gpu(index: int = 0, **changes) -> Gpu:
    values = {
        "nvml_index": index,
        "cuda_index": index,
        "name": "A100",
        "uuid": f"GPU-{index}",
        "memory_bytes": 40 * GIB,
        "free_bytes": 39 * GIB,
        "compute_capability": (8, 0),
        "other_processes": (),
    }
    return Gpu(**values | changes)


def hardware(**changes) -> Hardware:
    values = {
        "node": "node1",
        "cpu": cpu(),
        "memory": Memory(
            total_bytes=64 * GIB,
            available_bytes=60 * GIB,
            usable_bytes=32 * GIB,
            limits=(MemoryLimit(source="cgroup v2 /a", limit_bytes=32 * GIB),),
        ),
        "gpus": (gpu(0), gpu(1)),
        "gpu_links": (GpuLink(first_uuid="GPU-0", second_uuid="GPU-1", kind="nvlink"),),
        "networks": (
            NetworkInterface(
                name="eth0",
                kind="physical",
                is_up=True,
                addresses=("192.0.2.7",),
                speed_bytes_per_s=1.25e8,
            ),
        ),
        "speeds": Speeds(fp32_one_core_flop_per_s=1e11),
        "warnings": ("a line",),
    }
    return Hardware(**values | changes)


BUSY = {
    "another name": {"node": "node2"},
    "less free memory": {"memory": replace(hardware().memory, available_bytes=GIB)},
    "a few MiB more for the kernel": {
        "memory": replace(hardware().memory, total_bytes=64 * GIB - 2**25)
    },
    "no speeds": {"speeds": None},
    "another address": {"networks": ()},
    "warnings": {"warnings": ()},
    "somebody else on a GPU": {
        "gpus": (
            gpu(0, free_bytes=GIB, other_processes=(GpuProcess(pid=7, used_bytes=GIB),)),
            gpu(1),
        )
    },
    "a hidden GPU": {"gpus": (gpu(0, cuda_index=None), gpu(1, cuda_index=0))},
    "other GPUs of the same kind": {"gpus": (gpu(0), gpu(1, uuid="GPU-9"))},
    "GPUs in another order": {"gpus": (gpu(1), gpu(0))},
    "a newer driver": {"gpu_driver": "999.1"},
}

CHANGED = {
    "fewer usable cores": {"cpu": cpu(usable_cores=2, core_ids=(0, 1))},
    "another processor": {"cpu": cpu(model="Xeon")},
    "other instruction sets": {"cpu": cpu(instruction_sets=("avx2",))},
    "a second socket": {"cpu": cpu(sockets=2)},
    "more memory": {"memory": replace(hardware().memory, total_bytes=128 * GIB)},
    "a GPU less": {"gpus": (gpu(0),)},
    "an exchanged GPU": {"gpus": (gpu(0), gpu(1, name="H100"))},
    "MIG switched on": {"gpus": (gpu(0), gpu(1, mig_enabled=True))},
}


@pytest.mark.parametrize("changes", BUSY.values(), ids=BUSY)
def test_fingerprint_stays_with_the_hardware(changes):
    assert hardware(**changes).fingerprint() == hardware().fingerprint()


@pytest.mark.parametrize("changes", CHANGED.values(), ids=CHANGED)
def test_fingerprint_changes_with_the_hardware(changes):
    assert hardware(**changes).fingerprint() != hardware().fingerprint()


def test_order_of_unlike_gpus_counts_as_plans_name_them_by_number():
    one, other = gpu(0), gpu(1, name="H100")
    swapped = (replace(other, nvml_index=0), replace(one, nvml_index=1))
    assert hardware(gpus=(one, other)).fingerprint() != hardware(gpus=swapped).fingerprint()


def test_hardware_survives_json():
    assert codec.decode(codec.encode(hardware()), Hardware, source="hardware") == hardware()


def test_first_of_equal_limits_binds():
    assert cpu().binding_limit.source == "affinity"


def smt_machine(*, may_pin: bool = True) -> Cpu:
    """Two NUMA nodes of two physical cores with two hardware threads each: 0-3, siblings 4-7."""
    homes = {0: (0, 0), 1: (0, 1), 2: (1, 2), 3: (1, 3), 4: (0, 0), 5: (0, 1), 6: (1, 2), 7: (1, 3)}
    return Cpu(
        architecture="x86_64",
        logical_cores=8,
        usable_cores=8,
        core_ids=tuple(range(8)),
        core_homes=tuple(homes[core] for core in range(8)),
        may_pin=may_pin,
        limits=(CoreLimit(source="test", cores=8),),
    )


def test_few_threads_get_a_physical_core_each():
    assert smt_machine().choose_cores(4) == (0, 1, 2, 3)


def test_halves_of_all_cores_lie_in_a_numa_node_each():
    cores = smt_machine().choose_cores(8)
    assert set(cores[:4]) == {0, 1, 4, 5}
    assert set(cores[4:]) == {2, 3, 6, 7}


def test_quarters_of_all_cores_are_a_physical_core_each():
    cores = smt_machine().choose_cores(8)
    assert [set(cores[i : i + 2]) for i in (0, 2, 4, 6)] == [{0, 4}, {1, 5}, {2, 6}, {3, 7}]


def test_nothing_is_pinned_where_a_quota_grants_time_and_not_cores():
    assert smt_machine(may_pin=False).choose_cores(4) == ()
