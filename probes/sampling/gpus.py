"""Use of GPUs, from NVML: how busy they are, their memory and power."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from probes.sampling.open_gpus import OpenGpus


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuUse:
    """What one GPU uses, by whatever program; ``None`` where NVML does not tell."""

    uuid: str
    utilisation: float | None
    """Part of about the last second in which it computed, 0 to 1."""
    memory_bytes: int | None
    power_w: float | None


class GpuSampler:
    """Samples some GPUs; never raises. NVML is loaded where there are any, and left by `close`.

    Args:
        uuids: Of the GPUs, as NVML writes them.
        nvml: Something with the functions of the module ``pynvml``, which it is when left out.
    """

    def __init__(self, uuids: Sequence[str], nvml: Any = None) -> None:
        self._gpus = OpenGpus(uuids, nvml)

    def sample(self) -> tuple[GpuUse, ...]:
        """Read what the GPUs use now."""
        return tuple(self._read(uuid, handle) for uuid, handle in self._gpus.handles.items())

    def close(self) -> None:
        """Leave NVML."""
        self._gpus.close()

    def _read(self, uuid: str, handle: Any) -> GpuUse:
        rates = self._gpus.query("nvmlDeviceGetUtilizationRates", handle)
        memory = self._gpus.query("nvmlDeviceGetMemoryInfo", handle)
        power_mw = self._gpus.query("nvmlDeviceGetPowerUsage", handle)
        return GpuUse(
            uuid=uuid,
            utilisation=None if rates is None else rates.gpu / 100,
            memory_bytes=None if memory is None else int(memory.used),
            power_w=None if power_mw is None else power_mw / 1000,
        )
