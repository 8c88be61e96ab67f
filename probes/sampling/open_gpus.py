"""GPUs about which NVML is asked again and again."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from probes.gpu import Nvml


class OpenGpus:
    """Some GPUs; never raises. NVML is loaded where there are any, and left by `close`.

    Args:
        uuids: Of the GPUs, as NVML writes them.
        nvml: Something with the functions of the module ``pynvml``, which it is when left out.

    Attributes:
        handles: NVML's handles of those that it knows, by UUID.
    """

    def __init__(self, uuids: Sequence[str], nvml: Any = None) -> None:
        self._nvml: Nvml | None = None
        self.handles: dict[str, Any] = {}
        if not uuids:
            return
        try:
            module = importlib.import_module("pynvml") if nvml is None else nvml
            module.nvmlInit()
        except Exception:  # noqa: BLE001 - a broken installation raises what it likes
            return
        self._nvml = Nvml(module)
        for uuid in uuids:
            handle = self._nvml.query("nvmlDeviceGetHandleByUUID", uuid)
            if handle is not None:
                self.handles[uuid] = handle

    def query(self, function: str, handle: Any, *arguments: Any) -> Any:
        """Query NVML about one of the handles; ``None`` where it does not tell."""
        assert self._nvml is not None  # else there are no handles
        return self._nvml.query(function, handle, *arguments)

    def close(self) -> None:
        """Leave NVML."""
        if self._nvml is not None:
            self._nvml.query("nvmlShutdown")
        self._nvml, self.handles = None, {}
