"""All probes of a node together."""

from __future__ import annotations

import platform
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from probes.cpu import read_cpu
from probes.cuda_devices import CudaDevices, hides_all, number_gpus, predict_order, query_torch
from probes.errors import DataProbeError, SpeedProbeError
from probes.gpu import Gpus, read_gpus
from probes.hardware import (
    ALL_HIDDEN,
    GIB,
    ORDER_UNKNOWN,
    Cpu,
    DataSpeed,
    Gpu,
    Hardware,
    Memory,
    NetworkInterface,
    Speeds,
)
from probes.memory import read_memory
from probes.network.interfaces import read_networks
from probes.speed import SpeedReport, measure_speeds
from probes.storage.data_speed import measure_data

_LIMIT_S = 10.0
_RESERVE_S = 1.5
"""For the other probes, and for a child that ends a little late."""

_DATA_BUDGET_S = 14.0
_SMALL_SHM_BYTES = GIB


def probe(
    *,
    quick: bool = False,
    known_speeds: Speeds | None = None,
    data: Path | None = None,
    local: Path | None = None,
) -> Hardware:
    """Probe this node; what cannot be found is a warning, never an exception.

    Takes at most 10 s, most of it for measuring speeds; data come on top.

    Args:
        quick: Measure nothing and do not start torch: below 2 s. CUDA's numbers of the GPUs are
            then predicted, which is not possible where GPUs of different kinds are mixed.
        known_speeds: Speeds of this hardware that were measured before, to be taken as they are.
            All else is read anew; torch is asked for its GPUs where there are some. They are
            predicted where it is loaded too slowly to answer.
        data: A folder of data to be measured too.
        local: Folder on a local disk, for a copy of some of them.
    """
    start_s = time.monotonic()
    warnings: list[str] = []
    cpu, memory, found = read_cpu(), read_memory(), read_gpus()
    networks = _read_networks(warnings)
    report = None
    if quick:
        devices = _predict_devices(found)
    else:
        budget_s = start_s + _LIMIT_S - _RESERVE_S - time.monotonic()
        if known_speeds is not None:
            devices, report = _query_devices(found, budget_s), SpeedReport(speeds=known_speeds)
        else:
            devices, report = _run_children(cpu, found, budget_s, warnings)
    gpus = number_gpus(found.gpus, devices.uuids)
    read = () if data is None else _measure_data(data, local, cpu, warnings)
    return Hardware(
        node=platform.node(),
        cpu=cpu,
        memory=memory,
        gpus=gpus,
        gpu_links=found.links,
        gpu_reason=found.reason or devices.reason,
        gpu_driver=found.driver,
        networks=networks,
        speeds=None if report is None else report.speeds,
        data=read,
        warnings=(
            *warnings,
            *found.warnings,
            *_find_warnings(memory, gpus, devices),
            *(() if report is None else report.failures),
        ),
    )


def probe_for_plans() -> Hardware:
    """Probe this node quickly, but with CUDA's numbers of its GPUs, which plans name.

    Where they cannot be predicted torch is queried for them, which takes seconds.
    """
    node = probe(quick=True)
    if not node.gpus or node.gpu_reason != ORDER_UNKNOWN:
        return node
    devices = query_torch()
    gpus = number_gpus(node.gpus, devices.uuids)
    return replace(node, gpus=gpus, gpu_reason=devices.reason)


def _predict_devices(found: Gpus) -> CudaDevices:
    if hides_all(found.gpus):
        return CudaDevices(reason=ALL_HIDDEN)
    uuids = predict_order(found.gpus)
    return CudaDevices(reason=ORDER_UNKNOWN) if uuids is None else CudaDevices(uuids=uuids)


def _query_devices(found: Gpus, budget_s: float) -> CudaDevices:
    """Query torch; predict what it would say where it is loaded too slowly to say it."""
    if not found.gpus:
        return CudaDevices()
    devices = query_torch(limit_s=budget_s)
    predicted = predict_order(found.gpus) if devices.is_late else None
    return CudaDevices(uuids=predicted, is_late=True) if predicted else devices


def _run_children(
    cpu: Cpu, found: Gpus, budget_s: float, warnings: list[str]
) -> tuple[CudaDevices, SpeedReport | None]:
    """Run two children at once: both spend most of their time on importing torch."""
    with ThreadPoolExecutor(max_workers=1) as executor:
        pending = executor.submit(_query_devices, found, budget_s)
        # in this thread, so that Ctrl-C reaches it at once
        try:
            report = measure_speeds(cpu.core_ids, budget_s=budget_s)
        except SpeedProbeError as error:
            report = None
            warnings.append(str(error))
        return pending.result(), report


def _measure_data(
    data: Path, local: Path | None, cpu: Cpu, warnings: list[str]
) -> tuple[DataSpeed, ...]:
    folder = Path(tempfile.gettempdir()) if local is None else local
    try:
        speed = measure_data(data, cores=cpu.usable_cores, local=folder, budget_s=_DATA_BUDGET_S)
    except DataProbeError as error:
        warnings.append(str(error))
        return ()
    if speed.num_unreadable:
        warnings.append(
            f"data {data}: {speed.num_unreadable} of the files to be measured cannot be opened: "
            "let this user read them"
        )
    return (speed,)


def _read_networks(warnings: list[str]) -> tuple[NetworkInterface, ...]:
    try:
        return read_networks()
    except (OSError, RuntimeError) as error:  # a network namespace may be closed to us
        warnings.append(f"network interfaces cannot be read: {error}")
        return ()


def _find_warnings(memory: Memory, gpus: tuple[Gpu, ...], devices: CudaDevices) -> Iterator[str]:
    if memory.shm_bytes is None:
        yield "no shared memory: workers cannot share tensors; mount a tmpfs on /dev/shm"
    elif memory.shm_bytes < _SMALL_SHM_BYTES:
        size_mib = memory.shm_bytes // 2**20
        yield (
            f"only {size_mib} MiB of shared memory, through which workers share tensors: "
            "start the container with --shm-size=8g or --ipc=host"
        )
    if devices.is_late and devices.uuids:
        yield "torch did not say in time which GPUs it can use: they are predicted; probe again"
    hidden = [str(gpu.nvml_index) for gpu in gpus if gpu.cuda_index is None]
    if devices.uuids and hidden:
        yield f"GPU {', '.join(hidden)} not shown by CUDA: it is not planned for"
