"""Watch of GPUs: who else computed on them in a turn, and whether something slowed them down."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from probes.disturbance import Disturbance
from probes.kernel_files import ROOT, read_process_stat, read_text
from probes.sampling.open_gpus import OpenGpus

_REASONS = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
"""A function, and its older name."""

# <nvml.h>: nvmlClocksEventReasons. A GPU at its power limit, 0x04, is as fast as it ever is.
_SW_THERMAL, _HW_THERMAL, _HW_POWER_BRAKE = 0x20, 0x40, 0x80
_HW_SLOWDOWN = 0x08
"""May also be there for a moment where clocks change: it counts where it was before and after."""

_MPS = "nvidia-cuda-mps"
"""Beginning of the name of CUDA's multi-process service, which computes for others, us too."""


class GpuWatch:
    """Tells what happened on GPUs, from turn to turn, by two queries of each before and after.

    NVML has the machine's process numbers, which in a container may be other ones than ours. So
    others count only on a GPU on which it has also seen a process of ours compute.

    Args:
        uuids: Of the GPUs, as NVML writes them.
        are_used: Whether the plan uses all of them. Else one counts in turns in which NVML has seen
            a process of ours compute on it.
        nvml: Something with the functions of the module ``pynvml``, which it is when left out.
        root: Root of the file system in which processes are looked up.
    """

    def __init__(
        self, uuids: Sequence[str], *, are_used: bool, nvml: Any = None, root: Path = ROOT
    ) -> None:
        self._gpus = OpenGpus(uuids, nvml)
        self._are_used = are_used
        self._root = root
        self._seen_us = dict.fromkeys(self._gpus.handles, 0)
        self._reasons = dict.fromkeys(self._gpus.handles, 0)

    def begin(self) -> None:
        """Note what is known before a turn."""
        for uuid, handle in self._gpus.handles.items():
            times_us = [sample.timeStamp for sample in self._read_samples(uuid, handle)]
            self._seen_us[uuid] = max(times_us, default=self._seen_us[uuid])
            self._reasons[uuid] = self._read_reasons(handle)

    def end(self, found: Disturbance | None) -> Disturbance | None:
        """Give what happened since `begin`: on the GPUs, beside what was found on the cores."""
        share, slowed = 0.0, 0
        for uuid, handle in self._gpus.handles.items():
            shares = {one.pid: one.smUtil / 100 for one in self._read_samples(uuid, handle)}
            is_own = {pid: self._is_own(pid) for pid in shares}
            has_own = True in is_own.values()
            if has_own and False in is_own.values():
                running = self._find_computing(handle)
                others = [pid for pid in running if is_own.get(pid) is False]
                share = max(share, min(1.0, sum(shares[pid] for pid in others)))
            if has_own or self._are_used:
                slowed += _is_slowed(self._reasons[uuid], self._read_reasons(handle))
        if not share and not slowed:
            return found
        return replace(found or Disturbance(), others_gpu_share=share, slowed_gpus=slowed)

    def close(self) -> None:
        """Leave NVML."""
        self._gpus.close()

    def _read_samples(self, uuid: str, handle: Any) -> list[Any]:
        """Read which processes computed since the last sample before the turn: one for each.

        Some drivers give old and impossible ones too: https://github.com/Syllo/nvtop/issues/110.
        """
        seen_us = self._seen_us[uuid]
        samples = self._gpus.query("nvmlDeviceGetProcessUtilization", handle, seen_us) or ()
        return [one for one in samples if one.timeStamp > seen_us and one.smUtil <= 100]

    def _read_reasons(self, handle: Any) -> int:
        """Read why clocks are reduced; 0 where NVML does not tell."""
        answers = (self._gpus.query(function, handle) for function in _REASONS)
        return next((int(reasons) for reasons in answers if reasons is not None), 0)

    def _find_computing(self, handle: Any) -> set[int]:
        """Find the processes that are there to compute: those that draw a screen are none."""
        running = self._gpus.query("nvmlDeviceGetComputeRunningProcesses", handle) or ()
        return {one.pid for one in running}

    def _is_own(self, pid: int) -> bool | None:
        """Tell whether this process or a descendant has a number; ``None`` where that is unsure."""
        name = read_text(self._root / f"proc/{pid}/comm")
        if name is None or name.startswith(_MPS):
            return None
        while pid > 1:
            if pid == os.getpid():
                return True
            fields = read_process_stat(self._root / f"proc/{pid}")
            if fields is None:  # it has ended, and whose it was is not known
                return None
            pid = int(fields[1])
        return False


def _is_slowed(before: int, after: int) -> bool:
    by_cause = (before | after) & (_SW_THERMAL | _HW_THERMAL | _HW_POWER_BRAKE)
    return bool(by_cause or before & after & _HW_SLOWDOWN)
