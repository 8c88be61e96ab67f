"""Prior of the search: what is believed of each term before any trial has shown it."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from launch.case_facts import CaseFacts
from probes.hardware import Hardware, Speeds


@dataclass(frozen=True, slots=True)
class Belief:
    """A normal distribution of one coefficient."""

    mean: float
    deviation: float


_SETTINGS = {
    "input": Belief(0.0, 0.3),
    "precision": Belief(0.0, 0.25),
    "compile": Belief(0.0, 0.25),
    "cuda_graph": Belief(0.0, 0.15),
    "memory_format": Belief(0.0, 0.10),
    "allocator": Belief(0.0, 0.08),
    "fused_optimizer": Belief(0.0, 0.04),
}
"""What each value of a setting may change, as logarithms: about as much as it was seen to change
on machines where it was measured (bench/results/)."""

_OTHER_SETTING = Belief(0.0, 0.05)
_OWN_SHARE = 0.5
"""Deviation of what a term does in one strategy beside what it does in all / that of the latter."""

_GUESSED = -0.02
"""Value that a strategy guesses first: a little better than another one."""

_LEVEL = Belief(0.0, 6.0)
_GPU_IN_CORES = 30.0
"""Speed of a GPU / that of a core. An assumption, with a wide deviation."""

_DOUBLED = {
    "workers": Belief(-0.85 * math.log(2), 0.12),
    "replicas": Belief(0.0, 0.06),
    "stages": Belief(0.15, 0.12),
    "micro-batches": Belief(0.01, 0.03),
    "loaders": Belief(-0.2, 0.3),
}
"""What a doubling changes. Two GPUs do 1.8 times the work of one; a cut is never equal. More
than a few loading processes are tried where plans wait for them."""

_CORES_DOUBLED = Belief(-0.95 * math.log(2), 0.1)
"""What doubling the workers changes on CPUs, where the serial part of the work is a term by itself:
without it, two workers do 1.93 times the work of one."""

_SIZES = {
    "batch doubled": Belief(0.0, 0.01),
    "samples at once doubled": Belief(0.01, 0.02),
    "micro-batches doubled": Belief(0.0, 0.04),
    "serial part": Belief(1.0, 0.8),
}
"""What a doubling changes, whatever the size and the strategy. Caches hold less of what is computed
at once; what micro-batches gain or cost in one strategy they do in another. The serial part is no
doubling: 1 is the part that `terms` assumes, 0 is none."""

_FIXED = {"cpu": Belief(math.log(3.0), 1.0), "gpu": Belief(math.log(16.0), 1.2)}
"""Fixed part of a step, in samples of one worker."""

_CALLS, _KNOWN_DEVIATION = 1.5, 0.8
_PASSES = 8
"""The same on CPUs where more is known: calls, in samples, at least, and the update. That reads and
writes the memory of gradients, momentum and weights about so often, at the speed of copying."""

_OWN_FIXED = Belief(0.0, 0.5)
_DOUBLED_FIXED, _OWN_DOUBLED_FIXED = Belief(0.3, 0.2), Belief(0.0, 0.2)
"""What a doubling of the replicas changes of the fixed part: gradients of all of them are summed.
The update moves as many bytes as eight copies of them, so that 64 replicas take about eight times
as long as one. On GPUs it is an assumption. What else replicas wait for is a strategy's own: in
threads of one process all calls need the interpreter's lock."""

_KINDS = {"cpu": Belief(0.0, 0.5), "gpu": Belief(-math.log(_GPU_IN_CORES), 1.5)}

_DOUBLING = re.compile(r"\d+ to \d+ (\S+)")
_LAYOUT = re.compile(r"\d+x\d+x\d+")


class Prior:
    """What is believed of each term, from the limits that the probe found.

    Args:
        case: What is trained.
        node: Where.
        guessed: Names of the terms of the strategies' first guesses.
    """

    def __init__(self, case: CaseFacts, node: Hardware, guessed: frozenset[str]) -> None:
        self._speeds = node.speeds or Speeds()
        self._guessed = guessed
        self._fixed = {**_FIXED, "cpu": _believe_fixed(case, node, self._speeds) or _FIXED["cpu"]}

    def belief(self, name: str) -> Belief:
        """Give what is believed of the coefficient of a term."""
        if name.startswith("level"):
            return _LEVEL
        if name.startswith("on "):
            return _KINDS[name.removeprefix("on ")]
        place, _, what = name.partition(": ")
        if not what:
            return Belief(0.0, 0.15)
        is_own = " on " in place
        if what == "fixed part":
            return _OWN_FIXED if is_own else self._fixed[place]
        if what == "fixed part, replicas doubled":
            return _OWN_DOUBLED_FIXED if is_own else _DOUBLED_FIXED
        if what in _SIZES:
            return _SIZES[what]
        if _LAYOUT.fullmatch(what):
            return Belief(0.0, 0.04)
        if ", " in what:
            return Belief(0.0, _OWN_SHARE * self._setting(what).deviation / 2)
        if doubled := _DOUBLING.fullmatch(what):
            unit = doubled[1]
            belief = _CORES_DOUBLED if (place, unit) == ("cpu", "workers") else _DOUBLED[unit]
            is_shared = is_own and unit in ("replicas", "stages")
            return Belief(0.0, _OWN_SHARE * belief.deviation) if is_shared else belief
        belief = self._setting(what)
        if is_own:
            return Belief(0.0, _OWN_SHARE * belief.deviation)
        mean = belief.mean + self._limit(place, what)
        return Belief(mean + (_GUESSED if name in self._guessed else 0.0), belief.deviation)

    def _setting(self, what: str) -> Belief:
        return _SETTINGS.get(what.partition("=")[0], _OTHER_SETTING)

    def _limit(self, kind: str, what: str) -> float:
        """Give what a measured limit says of a value: half of what it would allow at most."""
        exact = self._speeds.fp32_all_cores_flop_per_s
        rounded = self._speeds.bf16_all_cores_flop_per_s
        if kind == "cpu" and what.startswith("precision=bf16") and exact and rounded:
            return -0.5 * math.log(rounded / exact)
        return -0.3 if kind == "gpu" and what == "precision=bf16" else 0.0


def _believe_fixed(case: CaseFacts, node: Hardware, speeds: Speeds) -> Belief | None:
    """Give the fixed part of a step on CPUs, from the size of the model and the speed of memory."""
    bytes_per_s = speeds.copy_all_cores_bytes_per_s
    if not case.sample_s or not bytes_per_s:
        return None
    of_worker_s = case.sample_s * node.cpu.usable_cores
    calls = max(_CALLS, (case.calls_s or 0.0) / of_worker_s)
    update = _PASSES * case.parameter_bytes / bytes_per_s / of_worker_s
    return Belief(math.log(calls + update), _KNOWN_DEVIATION)
