"""Memory of plans: those that cannot fit are not tried.

``peak = base * workers + state * parameters * copies + activations * samples at once``: a process
with its libraries, what a copy of the model keeps (parameters, gradients, the optimizer's state),
and what a sample keeps between its forward and its backward pass. Each is learned from trials by
the same regression as times are; the last one, which needs two batches, begins with what was
measured while the use case was described. That also says, before any trial, what a plan needs at
least, on GPUs as well, whose memory trials do not show.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from launch.case_facts import CaseFacts
from launch.errors import SharedMemoryError
from launch.plan import Plan
from launch.strategies._gpus import cuda_devices, exclusive_devices, usable_gpus
from launch.workers.log import involves_loaders
from planner.search.terms import copies_of, kind_of, stages_of
from planner.trials.result import Outcome, TrialResult
from probes.hardware import Hardware

_BASE_BYTES, _STATE, _SAMPLE_BYTES = 4e8, 3.0, 1e6
"""What is believed before the first trial. A process with torch takes 0.4 GB; gradients and the
optimizer's state are as large as the parameters each."""

_DOUBTS = (2e8, 1.5, 5e7)
_KEPT_DOUBT = 0.5
"""Standard deviation of what a sample keeps / what was measured: passes have other needs too."""

_LEAST_KEPT = 0.5
"""Part of it that is kept at least where numbers are half as long, or code is compiled."""

_ACCURACY = 0.08
"""Standard deviation of a measured peak / the peak: allocators keep more or less for later."""

_SIDE_BY_SIDE = 0.8
"""Part of the node's memory for all plans side by side."""

_READ_AHEAD = 2
"""Batches that torch's DataLoader lets each of its processes read ahead."""


class MemoryModel:
    """Memory of plans on one node.

    Args:
        case: What is trained.
        node: Where.
    """

    def __init__(self, case: CaseFacts, node: Hardware) -> None:
        self._parameter_bytes = max(case.parameter_bytes, 1)
        self._limit_bytes = node.memory.usable_bytes
        gpus = usable_gpus(node)
        free = [gpu.free_bytes or gpu.memory_bytes for gpu in gpus]
        sizes = zip(cuda_devices(gpus), free, strict=True)
        self._gpu_bytes = {device: size for device, size in sizes if size}
        """Of each GPU; a plan that leaves a small one out is not limited by it."""
        self._exclusive = exclusive_devices(node)
        self._has_peaks = False
        self._peaks_bytes: dict[Plan, int] = {}
        self._gpu_peaks_bytes: dict[Plan, int] = {}
        self._failed: list[Plan] = []
        self._failed_loading: list[Plan] = []
        """Where loading processes may have had the memory: with fewer of them a plan may fit."""
        self._filled_shared_memory: list[Plan] = []
        kept = case.kept_bytes_per_sample or 0
        # Where the user collates, samples may differ, and the first ones be the largest.
        are_alike = "collate" not in case.own_methods
        self._kept_bytes = kept if are_alike else 0
        self._sample_bytes = (case.sample_bytes or 0) if are_alike else 0
        self._shm_bytes = node.memory.shm_bytes
        doubts = (*_DOUBTS[:-1], _KEPT_DOUBT * kept or _DOUBTS[-1])
        self._mean = np.array([_BASE_BYTES, _STATE, kept or _SAMPLE_BYTES])
        self._covariance = np.diag(np.square(doubts))

    def learn(self, results: Sequence[TrialResult]) -> None:
        """Learn from more trials."""
        for result in results:
            if peak_bytes := result.peak_memory_bytes:
                known_bytes = self._peaks_bytes.get(result.plan, 0)
                self._peaks_bytes[result.plan] = max(peak_bytes, known_bytes)
            if gpu_bytes := result.peak_device_memory_bytes:
                known_bytes = self._gpu_peaks_bytes.get(result.plan, 0)
                self._gpu_peaks_bytes[result.plan] = max(gpu_bytes, known_bytes)
            if result.outcome is Outcome.OUT_OF_MEMORY:
                self._failures_like(result.reason or "").append(result.plan)
            elif result.peak_memory_bytes and kind_of(result.plan) == "cpu":
                self._add_peak(result.plan, result.peak_memory_bytes)

    def _failures_like(self, reason: str) -> list[Plan]:
        """Give the plans that lacked the same kind of memory."""
        if SharedMemoryError.__name__ in reason:
            return self._filled_shared_memory
        return self._failed_loading if involves_loaders(reason) else self._failed

    def peak_bytes(self, plan: Plan) -> float:
        """Give the expected peak of a plan on CPUs."""
        return float(self._parts(plan) @ self._mean)

    def may_fit(self, plan: Plan) -> bool:
        """Tell whether a plan is expected to need no more memory than there is.

        Of a GPU's memory only its end is seen: what has not fitted there does not with more
        samples at once.
        """
        if self._shm_bytes is not None and self._loaded_bytes(plan) > self._shm_bytes:
            return False
        loading = [one for one in self._failed_loading if plan.loader_workers >= one.loader_workers]
        if any(_needs_as_much(plan, failed) for failed in (*self._failed, *loading)):
            return False
        if any(_sends_as_much(plan, failed) for failed in self._filled_shared_memory):
            return False
        if kind_of(plan) == "gpu":
            known = [self._gpu_bytes[one] for one in plan.devices if one in self._gpu_bytes]
            return not known or self._least_bytes(plan) <= min(known)
        needed = self.peak_bytes(plan) if self._has_peaks else self._least_bytes(plan)
        return needed <= self._limit_bytes

    def _least_bytes(self, plan: Plan) -> float:
        """Give the memory that the node must have for a plan; on GPUs the mean over all of them.

        A forward pass ends with the weights and what its samples keep, a backward pass with the
        weights and as much of gradients. The fullest GPU has no less than the mean.
        """
        is_on_gpu = kind_of(plan) == "gpu"
        weights = self._parameter_bytes / (stages_of(plan) if is_on_gpu else 1)
        samples = _samples_at_once(plan, least=True) / (plan.processes if is_on_gpu else 1)
        is_exact = plan.precision == "fp32" and not plan.compile
        kept = self._kept_bytes * (1.0 if is_exact else _LEAST_KEPT)
        return weights + max(weights, kept * samples)

    def fit_side_by_side(self, plans: Sequence[Plan], running_bytes: Mapping[Plan, int]) -> bool:
        """Tell whether plans fit at once, as far as is known; one by itself has all there is.

        Plans on GPUs count by what they have of the node's memory, and with nothing of /dev/shm
        while they stand still. On a GPU of exclusive compute mode there is room for one.

        Args:
            plans: The plans.
            running_bytes: Peaks of plans that run.
        """
        taken = [device for plan in plans for device in self._exclusive.intersection(plan.devices)]
        if len(set(taken)) < len(taken):
            return False
        if len(plans) < 2:
            return True
        loaded_bytes = sum(self._loaded_bytes(plan) for plan in plans if kind_of(plan) == "cpu")
        if self._shm_bytes is not None and loaded_bytes > self._shm_bytes:
            return False
        needed = sum(self._known_or_expected(plan, running_bytes) for plan in plans)
        return needed <= _SIDE_BY_SIDE * self._limit_bytes

    def _loaded_bytes(self, plan: Plan) -> int:
        """Estimate what the batches of a plan's loading processes take of /dev/shm.

        Each process puts a batch together there, all at once in the beginning. On a CPU what they
        have read ahead waits there too; for a GPU it is moved to pinned memory.
        """
        ahead = _READ_AHEAD if kind_of(plan) == "cpu" else 1
        return ahead * plan.loader_workers * plan.node_batch * self._sample_bytes

    def held_gpu_bytes(self, plans: Sequence[Plan], running_bytes: Mapping[Plan, int]) -> int:
        """Give what plans have held of a GPU's memory, all together; 0 for those not known.

        Args:
            plans: The plans.
            running_bytes: Peaks of plans that run, on a GPU of theirs.
        """
        known = self._gpu_peaks_bytes
        return sum(max(known.get(plan, 0), running_bytes.get(plan, 0)) for plan in plans)

    def _known_or_expected(self, plan: Plan, running_bytes: Mapping[Plan, int]) -> float:
        if measured := max(self._peaks_bytes.get(plan, 0), running_bytes.get(plan, 0)):
            return measured
        is_expected = self._has_peaks and kind_of(plan) == "cpu"
        return max(0.0, self.peak_bytes(plan)) if is_expected else 0.0

    def _add_peak(self, plan: Plan, peak_bytes: int) -> None:
        """Take in one peak: a step of a Kalman filter, which is the regression, row by row."""
        self._has_peaks = True
        parts = self._parts(plan)
        spread = self._covariance @ parts
        gain = spread / (parts @ spread + (_ACCURACY * peak_bytes) ** 2)
        # Not cut off at 0: what one part is denied the next peaks would give to another.
        self._mean = self._mean + gain * (peak_bytes - parts @ self._mean)
        self._covariance = self._covariance - np.outer(gain, spread)

    def _parts(self, plan: Plan) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        copies = copies_of(plan) * self._parameter_bytes
        return np.array([plan.processes, copies, _samples_at_once(plan)], dtype=np.float64)


def _samples_at_once(plan: Plan, *, least: bool = False) -> float:
    """Count the samples whose activations are kept at one time, on the whole node.

    Stages keep those of as many micro-batches as there are stages, with the schedule 1F1B: the
    first of them does, and the last one keeps those of one, the least.
    """
    is_gpipe = plan.options.get("schedule") == "gpipe"
    held = plan.micro_batches if is_gpipe else 1 if least else stages_of(plan)
    return plan.node_batch * min(1.0, held / plan.micro_batches)


def _needs_as_much(plan: Plan, failed: Plan) -> bool:
    """Tell whether a plan is one that ran out of memory, but with as many samples or more."""
    is_alike = (plan.strategy, plan.devices, plan.precision) == (
        failed.strategy,
        failed.devices,
        failed.precision,
    )
    more_samples = _samples_at_once(plan) >= _samples_at_once(failed)
    return is_alike and plan.processes >= failed.processes and more_samples


def _sends_as_much(plan: Plan, failed: Plan) -> bool:
    """Tell whether a plan sends as much through /dev/shm as one that has filled it, or more.

    Each loading process of a worker puts a few of its batches there; NCCL has something there for
    each GPU.
    """
    is_alike = kind_of(plan) == kind_of(failed) and plan.processes >= failed.processes
    sent, filled = (one.loader_workers * one.node_batch for one in (plan, failed))
    return is_alike and sent >= filled
