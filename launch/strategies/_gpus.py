"""GPUs of a node that can be trained on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from launch.errors import InvalidPlanError
from probes.cuda_devices import are_alike, predict_order
from probes.hardware import ALL_HIDDEN, ORDER_UNKNOWN, Gpu, Hardware

if TYPE_CHECKING:
    from launch.plan import Plan

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


def find_devices(plan: Plan, node: Hardware) -> tuple[str, ...]:
    """Give the devices of a plan by the numbers that CUDA gives the GPUs of a node now.

    CUDA numbers what CUDA_VISIBLE_DEVICES lets through, which may be less than where the plan was
    found. A number that it shows stays as it is. For others the first GPUs that it shows are as
    good, where all of the node are alike. Where CUDA's numbers are not known, none is changed.

    Raises:
        InvalidPlanError: CUDA does not show as many GPUs, or they may be of another kind.
    """
    shown = cuda_devices(gpu for gpu in node.gpus if gpu.cuda_index is not None)
    may_replace = predict_order(node.gpus, {}) is not None
    is_known = bool(node.gpus) and (bool(shown) or may_replace or node.gpu_reason == ALL_HIDDEN)
    if not is_known or set(plan.devices) <= {"cpu", *shown}:
        return plan.devices
    wanted = list(dict.fromkeys(device for device in plan.devices if device != "cpu"))
    usable = cuda_devices(usable_gpus(node))
    if not may_replace or len(usable) < len(wanted):
        raise InvalidPlanError(
            f"devices={','.join(plan.devices)} and CUDA shows {','.join(shown) or 'no GPU'} on "
            f"{node.node}: set CUDA_VISIBLE_DEVICES as where the plan was found, or choose another"
        )
    taken = dict(zip(wanted, usable, strict=False))
    return tuple(taken.get(device, device) for device in plan.devices)


def explain_kinds(plan: Plan, node: Hardware) -> str | None:
    """Say which GPUs a plan is to run on, where those of its node are of different kinds.

    ``None`` where they are alike. A plan has CUDA's numbers alone, and with other variables of the
    environment these stand for other GPUs. Where a quick probe does not know which, the kinds that
    are there are named.
    """
    if not plan.gpus or are_alike(node.gpus):
        return None
    names = {f"cuda:{gpu.cuda_index}": gpu.name or "a GPU" for gpu in node.gpus}
    told = ", ".join(f"{one} ({names[one]})" if one in names else one for one in plan.devices)
    if node.gpu_reason == ORDER_UNKNOWN:
        kinds = sorted({gpu.name or "a GPU" for gpu in node.gpus})
        told += f" (of {', '.join(kinds)})"
    return (
        f"{node.node} has GPUs of different kinds: the plan trains on {told}, and was measured on "
        "those that CUDA numbered so in its search: leave CUDA_VISIBLE_DEVICES and "
        "CUDA_DEVICE_ORDER as they were then"
    )


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
