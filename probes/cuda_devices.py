"""GPUs that CUDA shows, with their numbers.

NVML numbers GPUs along the PCI bus and shows all of them. CUDA puts the fastest first and shows
only what ``CUDA_VISIBLE_DEVICES`` lets through. So the two are joined by UUID, and torch is queried
in a process of its own: ``python -m probes.cuda_devices``.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from probes.child_process import module_command, run_child
from probes.errors import first_line
from probes.hardware import Gpu

_NO_GPU = "No CUDA GPUs are available"
"""What torch says where CUDA shows none, whatever hides them: ``c10/cuda/CUDAFunctions.cpp``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaDevices:
    """GPUs that torch can train on."""

    uuids: tuple[str, ...] = ()
    """UUIDs in the order of CUDA's numbers."""

    reason: str | None = None
    """Why there are none, or why that is not known; ``None`` where there are some."""

    is_late: bool = False
    """Whether torch had not answered when its time was up."""


def query_torch(
    command: Sequence[str] = tuple(module_command("probes.cuda_devices")), *, limit_s: float = 30.0
) -> CudaDevices:
    """Query torch for its GPUs in a process of its own, which takes seconds."""
    result = run_child(command, limit_s=limit_s)
    document = result.document
    if document is None or not isinstance(document.get("uuids"), list):
        reason = f"torch was asked for its GPUs: {result.failure or 'no result'}"
        return CudaDevices(reason=reason, is_late=result.is_late)
    uuids = tuple(str(uuid) for uuid in document["uuids"])
    return CudaDevices(uuids=uuids, reason=None if uuids else str(document.get("reason")))


def number_gpus(gpus: Sequence[Gpu], uuids: Sequence[str]) -> tuple[Gpu, ...]:
    """Add CUDA's numbers to GPUs, found by UUID.

    Args:
        gpus: As NVML shows them.
        uuids: In CUDA's order, with or without the prefix ``GPU-``.
    """
    index_of = {_normalise_uuid(uuid): index for index, uuid in enumerate(uuids)}
    return tuple(
        replace(gpu, cuda_index=index_of.get(_normalise_uuid(gpu.uuid)) if gpu.uuid else None)
        for gpu in gpus
    )


def are_alike(gpus: Sequence[Gpu]) -> bool:
    """Tell whether GPUs are of one kind, as far as NVML tells kinds apart."""
    return len({(gpu.name, gpu.memory_bytes, gpu.compute_capability) for gpu in gpus}) <= 1


def predict_order(
    gpus: Sequence[Gpu], environ: Mapping[str, str] = os.environ
) -> tuple[str, ...] | None:
    """Predict the UUIDs that CUDA would show, in its order, without CUDA.

    ``None`` where that cannot be known: GPUs of different kinds, which CUDA sorts by a speed that
    it does not publish (unless CUDA_DEVICE_ORDER selects the order of the bus), GPUs cut up by
    MIG, and GPUs that hide their UUID.

    Source: CUDA C++ Programming Guide, "CUDA Environment Variables".
    """
    by_bus = environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    if not (by_bus or are_alike(gpus)) or any(gpu.mig_enabled for gpu in gpus):
        return None
    uuids = [gpu.uuid for gpu in sorted(gpus, key=lambda gpu: gpu.nvml_index) if gpu.uuid]
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if len(uuids) < len(gpus) or (visible or "").startswith("MIG-"):
        return None
    return tuple(uuids) if visible is None else _choose(uuids, visible)


def hides_all(gpus: Sequence[Gpu], environ: Mapping[str, str] = os.environ) -> bool:
    """Tell whether CUDA_VISIBLE_DEVICES lets no GPU through, whatever CUDA's order of them is."""
    return predict_order(gpus, {**environ, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}) == ()


def _choose(uuids: Sequence[str], visible: str) -> tuple[str, ...]:
    """Follow CUDA_VISIBLE_DEVICES as torch does: numbers, or beginnings of UUIDs with ``GPU-``.

    The first entry decides which. What follows a wrong one is not shown, nor anything where one
    comes twice.

    Source: ``_parse_visible_devices`` in ``torch/cuda/__init__.py``.
    """
    find = _find_by_uuid if visible.startswith("GPU-") else _find_by_number
    chosen: list[str] = []
    for entry in visible.split(","):
        found = find(uuids, entry)
        if len(found) != 1:
            break
        if found[0] in chosen:
            return ()
        chosen.append(found[0])
    return tuple(chosen)


def _find_by_uuid(uuids: Sequence[str], entry: str) -> Sequence[str]:
    return [uuid for uuid in uuids if entry.startswith("GPU-") and uuid.startswith(entry)]


def _find_by_number(uuids: Sequence[str], entry: str) -> Sequence[str]:
    number = re.match("[+]?[0-9]+", entry.strip())
    return uuids[int(number[0]) :][:1] if number else ()


def _normalise_uuid(uuid: str) -> str:
    return uuid.strip().lower().removeprefix("gpu-")


def _describe_torch() -> dict[str, Any]:
    import torch

    if torch.version.cuda is None:
        return {"uuids": [], "reason": f"torch {torch.__version__} is built without CUDA"}
    uuids: list[str] = []
    try:
        # Before CUDA is in use torch counts by NVML, which counts what CUDA cannot use too: beside
        # parts of MIG, outside of the container, or all, where the driver is too old.
        for index in range(torch.cuda.device_count()):
            properties = torch.cuda.get_device_properties(index)
            uuids.append(str(properties.uuid))
    except (AssertionError, RuntimeError) as error:
        if not uuids:
            return {"uuids": [], "reason": f"torch can use no GPU: {first_line(error)}"}
    return {"uuids": uuids} if uuids else {"uuids": [], "reason": _explain_none()}


def _explain_none() -> str:
    """Explain why torch counts no GPU, by what CUDA says as it starts: a driver may be too old."""
    import torch

    why = _NO_GPU
    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]
    except (AssertionError, RuntimeError) as error:
        why = first_line(error)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and why.startswith(_NO_GPU):
        return f"CUDA_VISIBLE_DEVICES={visible!r} hides every GPU"
    return f"torch can use no GPU: {why}"


def main() -> None:
    """Print torch's GPUs as one JSON document."""
    print(json.dumps(_describe_torch()))  # noqa: T201


if __name__ == "__main__":
    main()
