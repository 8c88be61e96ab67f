"""GPUs of a node that can be trained on."""

from __future__ import annotations

from collections.abc import Iterable

from probes.hardware import Gpu, Hardware

_EXCLUSIVE = ("exclusive_process", "exclusive_thread")
_HIDDEN = "is not shown by CUDA"


def usable_gpus(node: Hardware) -> list[Gpu]:
    """List the GPUs that torch can use, those without other processes first, by CUDA's numbers."""
    usable = [gpu for gpu in node.gpus if _fault(gpu) is None]
    return sorted(usable, key=lambda gpu: (bool(gpu.other_processes), gpu.cuda_index))


def why_no_gpu(node: Hardware) -> str | None:
    """Return why no GPU can be trained on; ``None`` where one can."""
    if usable_gpus(node):
        return None
    faults = {gpu.nvml_index: _fault(gpu) for gpu in node.gpus}
    told = ", ".join(f"GPU {number} {fault}" for number, fault in faults.items())
    if node.gpu_reason and set(faults.values()) <= {_HIDDEN}:
        told = node.gpu_reason  # why it shows none of them, if there are any
    return f"no usable GPU: {told or 'this host has none'}"


def cuda_devices(gpus: Iterable[Gpu]) -> tuple[str, ...]:
    """Give GPUs as devices of a plan."""
    return tuple(f"cuda:{gpu.cuda_index}" for gpu in gpus)


def exclusive_devices(node: Hardware) -> frozenset[str]:
    """Give the GPUs that CUDA lets one process use at a time, as devices of a plan."""
    return frozenset(cuda_devices(g for g in usable_gpus(node) if g.compute_mode in _EXCLUSIVE))


def _fault(gpu: Gpu) -> str | None:
    if gpu.mig_enabled:  # CUDA shows its parts, by names of their own
        return "is cut up by MIG"
    if gpu.compute_mode == "prohibited":
        return "has compute mode prohibited"
    if gpu.cuda_index is None:
        return _HIDDEN
    if gpu.compute_mode in _EXCLUSIVE and gpu.other_processes:
        return f"has compute mode {gpu.compute_mode} and is taken by another process"
    return None
