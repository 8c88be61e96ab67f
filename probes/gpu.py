"""GPUs, their links and their other processes, from NVML.

Any call to NVML may fail: there is no driver, it does not fit its library, the GPU is too old or
too virtual for the query, or has fallen off the bus. What is not known is ``None``; where
nothing is known there are no GPUs, and a reason.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from probes.hardware import GIB, Gpu, GpuLink, GpuProcess
from probes.kernel_files import ROOT, read_text

_REMEDY = "training uses the CPU"

# <nvml.h>: nvmlComputeMode_t, nvmlGpuTopologyLevel_t
_COMPUTE_MODES = {0: "default", 1: "exclusive_thread", 2: "prohibited", 3: "exclusive_process"}
_TOPOLOGY = {
    0: "board",
    10: "pcie_switch",
    20: "pcie_switches",
    30: "host_bridge",
    40: "numa_node",
    50: "system",
}
_P2P_CAPS_INDEX_NVLINK = 2
_P2P_STATUS_OK = 0
_MAX_NVLINKS = 36


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpus:
    """Facts of NVML about the GPUs of a node."""

    gpus: tuple[Gpu, ...] = ()
    """In NVML's order, without CUDA's numbers."""

    links: tuple[GpuLink, ...] = ()

    reason: str | None = None
    """Why there are none; ``None`` where there are some."""

    driver: str | None = None
    """Version of the driver."""

    warnings: tuple[str, ...] = ()


def read_gpus(nvml: Any = None, root: Path = ROOT) -> Gpus:
    """Query NVML for the GPUs; never raises.

    Args:
        nvml: Something with the functions of the module ``pynvml``, which it is when left out.
        root: Root of the file system in which the reason is searched.
    """
    try:
        nvml = importlib.import_module("pynvml") if nvml is None else nvml
        nvml.nvmlInit()
    except Exception as error:  # noqa: BLE001 - a broken installation raises what it likes
        return Gpus(reason=f"{_explain_absence(error, root)}; {_REMEDY}")
    try:
        return _read_all(Nvml(nvml))
    finally:
        Nvml(nvml).query("nvmlShutdown")


@dataclass(frozen=True, slots=True)
class Nvml:
    """NVML with failures turned into ``None``."""

    module: Any

    def query(self, function: str, *arguments: Any) -> Any:
        answer, _ = self.try_query(function, *arguments)
        return answer

    def try_query(self, function: str, *arguments: Any) -> tuple[Any, str | None]:
        """Give the answer and ``None``, or ``None`` and what went wrong."""
        try:
            answer = getattr(self.module, function)(*arguments)
        except Exception as error:  # noqa: BLE001 - NVMLError, or a library older than its module
            return None, _describe(error)
        return answer.decode() if isinstance(answer, bytes) else answer, None


def _read_all(nvml: Nvml) -> Gpus:
    driver = nvml.query("nvmlSystemGetDriverVersion")
    count, error = nvml.try_query("nvmlDeviceGetCount")
    if not count:
        reason = f"NVML cannot count the GPUs: {error}" if error else "the driver shows no GPU"
        return Gpus(reason=f"{reason}; {_REMEDY}", driver=driver)
    handles: list[Any] = []
    gpus: list[Gpu] = []
    warnings: list[str] = []
    for index in range(count):
        handle, error = nvml.try_query("nvmlDeviceGetHandleByIndex", index)
        if error is not None:
            warnings.append(f"GPU {index} cannot be reached ({error}): it is left out")
            continue
        handles.append(handle)
        gpus.append(_read_gpu(nvml, index, handle))
    return Gpus(
        gpus=tuple(gpus),
        links=tuple(_read_links(nvml, list(zip(gpus, handles, strict=True)))),
        reason=None if gpus else f"no GPU can be reached; {_REMEDY}",
        driver=driver,
        warnings=(*warnings, *(line for gpu in gpus for line in _find_warnings(gpu))),
    )


def _read_gpu(nvml: Nvml, index: int, handle: Any) -> Gpu:
    memory = nvml.query("nvmlDeviceGetMemoryInfo", handle)
    capability = nvml.query("nvmlDeviceGetCudaComputeCapability", handle)
    mig_modes = nvml.query("nvmlDeviceGetMigMode", handle)  # current and pending
    links = [nvml.query("nvmlDeviceGetNvLinkState", handle, link) for link in range(_MAX_NVLINKS)]
    return Gpu(
        nvml_index=index,
        name=nvml.query("nvmlDeviceGetName", handle),
        uuid=nvml.query("nvmlDeviceGetUUID", handle),
        memory_bytes=None if memory is None else int(memory.total),
        free_bytes=None if memory is None else int(memory.free),
        compute_capability=None if capability is None else tuple(capability),
        pcie_generation=nvml.query("nvmlDeviceGetMaxPcieLinkGeneration", handle),
        pcie_width=nvml.query("nvmlDeviceGetMaxPcieLinkWidth", handle),
        nvlinks=None if links == [None] * _MAX_NVLINKS else sum(map(bool, links)),
        mig_enabled=None if mig_modes is None else bool(mig_modes[0]),
        compute_mode=_COMPUTE_MODES.get(nvml.query("nvmlDeviceGetComputeMode", handle)),
        other_processes=_read_processes(nvml, handle),
    )


def _read_processes(nvml: Nvml, handle: Any) -> tuple[GpuProcess, ...] | None:
    running = nvml.query("nvmlDeviceGetComputeRunningProcesses", handle)
    if running is None:
        return None
    return tuple(
        GpuProcess(pid=int(process.pid), used_bytes=process.usedGpuMemory)
        for process in running
        if process.pid != os.getpid()
    )


def _read_links(nvml: Nvml, found: list[tuple[Gpu, Any]]) -> Iterator[GpuLink]:
    for (first, first_handle), (second, second_handle) in combinations(found, 2):
        pair = (first_handle, second_handle)
        # a query for peers, not for the far end of a link, also works through a switch
        status = nvml.query("nvmlDeviceGetP2PStatus", *pair, _P2P_CAPS_INDEX_NVLINK)
        level = nvml.query("nvmlDeviceGetTopologyCommonAncestor", *pair)
        kind = "nvlink" if status == _P2P_STATUS_OK else _TOPOLOGY.get(level)
        if kind is not None and first.uuid and second.uuid:
            yield GpuLink(first_uuid=first.uuid, second_uuid=second.uuid, kind=kind)


def _find_warnings(gpu: Gpu) -> Iterator[str]:
    who = f"GPU {gpu.nvml_index}"
    if gpu.other_processes:
        used = sum(process.used_bytes or 0 for process in gpu.other_processes) / GIB
        count = len(gpu.other_processes)
        noun = "process" if count == 1 else "processes"
        yield (
            f"{who} is used by {count} other {noun} ({used:.1f} GiB): "
            "times measured on it will vary; wait for them to end"
        )
    if gpu.compute_mode == "prohibited":
        yield f"{who} has compute mode prohibited: run nvidia-smi -i {gpu.nvml_index} -c DEFAULT"
    if gpu.mig_enabled:
        yield f"{who} is cut up by MIG: its parts are not planned for; switch MIG off to use it"


def _explain_absence(error: Exception, root: Path) -> str:
    devices = (root / "sys/bus/pci/devices").glob("*")
    displays = (d for d in devices if (read_text(d / "class") or "").startswith("0x03"))
    vendors = {read_text(display / "vendor") for display in displays}
    if "0x10de" in vendors:
        return f"an NVIDIA GPU is here, but its driver does not answer ({_describe(error)})"
    if "0x1002" in vendors:
        return "an AMD GPU is here, but only NVIDIA GPUs are planned for"
    return f"no NVIDIA driver ({_describe(error)})"


def _describe(error: Exception) -> str:
    return str(error) or type(error).__name__
