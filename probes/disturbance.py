"""Disturbance: what others took of cores and GPUs while something was timed."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from probes.cgroups import find_cgroups
from probes.hardware import Cpu
from probes.kernel_files import ROOT, parse_int, read_int, read_table, read_text
from probes.usage import TICKS_PER_S, cpu_s

_LEAST_LOST, _LOST = 0.1, 0.05
"""Cores, and part of a plan's cores, from which on what was lost counts as a disturbance: below it
lie what the system itself does now and then, and the rounding of the kernel's ticks. AlexNet's
steps on both of 2 cores took up to 8 % longer where others used 0.1 of them, and 18 % at 0.2."""

_WAITING = 0.25
"""Part of the time in which some task waited for a core, from which on that counts: only where
other processes' time cannot be told."""

_ON_GPU = 0.1
"""Part of the time in which others computed on a GPU, from which on that counts: an assumption."""

_MOST_SLOWED = 20.0
"""Times that a step has taken at most beside a process that always computes. Threads that spin
while they wait for one another suffer most: on 2 cores AlexNet's steps took 4.7 times as long, and
those of a perceptron, of 18 ms, 9.3 times. So twice that; workers that are processes took 1.9 and
2.4 times as long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Disturbance:
    """What happened on the machine while a plan made its steps."""

    others_cores: float | None = None
    """Cores that processes which are not the plan's used, on average; ``None`` where a quota grants
    time on cores that are not ours alone."""

    stolen_cores: float = 0.0
    """Cores that the hypervisor gave to other machines."""

    throttled_cores: float = 0.0
    """Cores that were not used because a quota was used up."""

    waiting_share: float | None = None
    """Part of the time in which some task waited for a core: pressure stall information."""

    overheated: int = 0
    """Times that the processor slowed down because it was too hot."""

    others_gpu_share: float = 0.0
    """Part of the time in which others computed on a GPU of the plan; of several the largest."""

    slowed_gpus: int = 0
    """GPUs of the plan that were too hot, or slowed down by their hardware."""

    def is_disturbed(self, threads: int, cores: int) -> bool:
        """Tell whether it slowed down a plan of so many threads on a node with so many cores."""
        if self.slowed_gpus or self.others_gpu_share >= _ON_GPU:
            return True
        if self.others_cores is None and (self.waiting_share or 0.0) >= _WAITING:
            return True
        beyond = max(0.0, (self.others_cores or 0.0) - (cores - threads))  # what the plan leaves
        lost = beyond + self.stolen_cores + self.throttled_cores
        return self.overheated > 0 or lost >= max(_LEAST_LOST, _LOST * threads)

    @property
    def most_slowed(self) -> float:
        """Times that a step may have taken of what it takes beside no other process, at most.

        While others compute, each part of a step may take `_MOST_SLOWED` times as long; on GPUs
        that is an assumption. What the hypervisor or a quota takes is the machine's own, and so are
        heat and others' use below `_LEAST_LOST`.
        """
        part = max(min(1.0, self.others_cores or 0.0), self.others_gpu_share)
        return 1 / (1 - part * (1 - 1 / _MOST_SLOWED)) if part >= _LEAST_LOST else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Totals:
    """Totals since some start: only differences mean anything."""

    time_s: float
    busy_s: float
    stolen_s: float
    throttled_s: float
    waiting_s: float | None
    overheated: int


class DisturbanceWatch:
    """Tells what others took, from turn to turn, by two or three small files before and after each.

    In a container ``/proc/stat`` is mostly that of the whole machine, and so are the others.
    """

    def __init__(
        self, cpu: Cpu, root: Path = ROOT, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._cores = cpu.core_ids
        self._owns_cores = cpu.may_pin
        self._root, self._clock = root, clock
        folders = [group.directory for group in find_cgroups("cpu", root)]
        # Periods are counted where there is a quota. One of less than a core stops any plan.
        has_whole_cores = (cpu.quota_cores or 1.0) >= 1
        stats = [folder / "cpu.stat" for folder in folders if has_whole_cores]
        self._stats = [p for p in stats if (parse_int(read_table(p).get("nr_periods")) or 0) > 0]
        pressures = [folder / "cpu.pressure" for folder in folders]
        pressures.append(root / "proc/pressure/cpu")
        self._pressure = next((path for path in pressures if read_text(path)), None)
        heat = root / f"sys/devices/system/cpu/cpu{self._cores[0]}/thermal_throttle"
        counter = heat / "package_throttle_count"
        self._heat = counter if read_int(counter) is not None else None
        self._before: _Totals | None = None
        self._own_s: float | None = None
        self._planner_s = 0.0

    def begin(self) -> None:
        """Note the totals before a turn."""
        self._planner_s = time.process_time()
        self._before = self._read()

    def end(self, pids: Iterable[int]) -> Disturbance | None:
        """Give what happened since `begin`.

        Args:
            pids: All processes of the plan. They stand still between turns.

        Returns:
            ``None`` for the first turn: what the processes had used before is not known.
        """
        after, before = self._read(), self._before
        own_s, earlier_s = cpu_s(pids, self._root), self._own_s
        self._own_s = own_s
        if before is None or earlier_s is None or after.time_s <= before.time_s:
            return None
        own_s += time.process_time() - self._planner_s - earlier_s
        elapsed_s = after.time_s - before.time_s
        others_s = after.busy_s - before.busy_s - own_s
        waiting_s = None
        if after.waiting_s is not None and before.waiting_s is not None:
            waiting_s = after.waiting_s - before.waiting_s
        return Disturbance(
            others_cores=max(0.0, others_s) / elapsed_s if self._owns_cores else None,
            stolen_cores=(after.stolen_s - before.stolen_s) / elapsed_s,
            throttled_cores=(after.throttled_s - before.throttled_s) / elapsed_s,
            waiting_share=None if waiting_s is None else waiting_s / elapsed_s,
            overheated=after.overheated - before.overheated,
        )

    def _read(self) -> _Totals:
        table = read_table(self._root / "proc/stat")
        lines = [list(map(int, table.get(f"cpu{core}", "").split())) for core in self._cores]
        # user, nice, system, idle, iowait, irq, softirq, steal: proc_stat(5)
        busy = sum(sum(line[:3]) + sum(line[5:7]) for line in lines)
        return _Totals(
            time_s=self._clock(),
            busy_s=busy / TICKS_PER_S,
            stolen_s=sum(sum(line[7:8]) for line in lines) / TICKS_PER_S,
            throttled_s=sum(self._throttled_s()),
            waiting_s=self._waiting_s(),
            overheated=(self._heat and read_int(self._heat)) or 0,
        )

    def _throttled_s(self) -> Iterator[float]:
        for path in self._stats:
            table = read_table(path)
            yield (parse_int(table.get("throttled_usec")) or 0) / 1e6  # version 2
            yield (parse_int(table.get("throttled_time")) or 0) / 1e9  # version 1

    def _waiting_s(self) -> float | None:
        text = read_text(self._pressure) if self._pressure else None
        total_us = re.search(r"^some .*\btotal=(\d+)", text or "", re.MULTILINE)
        return int(total_us[1]) / 1e6 if total_us else None
