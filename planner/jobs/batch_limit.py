"""Largest share of a node: what its memory holds, or what was seen to run."""

from __future__ import annotations

from launch.plan import Plan
from planner.plans.measured_steps import MeasuredSteps
from probes.hardware import Hardware, Memory

_USABLE_PART = 0.9
"""Of a node's memory: the rest is for the data set's pages and for what grows later."""

_LEAST_GROWTH = 0.1
"""Of memory per sample: what a sample takes at least, where two batches seem to take the same."""


def largest_batch(plan: Plan, steps: MeasuredSteps, node: Hardware) -> int:
    """Give the largest node batch that is known to run or, on a CPU, that its memory should hold.

    Memory is taken as a line over the batch, through the smallest and the largest that were
    measured; with one alone as proportional, which says rather too little than too much. Of a GPU's
    memory nothing was measured.
    """
    points = [p for p in steps.points if p.peak_memory_bytes is not None]
    if not is_memory_limited(plan, steps):
        return steps.largest_batch
    first, last = points[0], points[-1]
    assert first.peak_memory_bytes is not None
    assert last.peak_memory_bytes is not None
    per_sample = last.peak_memory_bytes / last.node_batch
    if first.node_batch < last.node_batch:
        grown = last.peak_memory_bytes - first.peak_memory_bytes
        measured = grown / (last.node_batch - first.node_batch)
        per_sample = max(measured, _LEAST_GROWTH * per_sample)
    room = _room_bytes(node.memory) - last.peak_memory_bytes
    return max(steps.largest_batch, last.node_batch + int(room / per_sample))


def is_memory_limited(plan: Plan, steps: MeasuredSteps) -> bool:
    """Tell whether memory sets the limit, and not just what was tried."""
    measured = any(point.peak_memory_bytes is not None for point in steps.points)
    return measured and "cpu" in plan.devices


def _room_bytes(memory: Memory) -> float:
    usable = _USABLE_PART * memory.usable_bytes
    return usable if memory.available_bytes is None else min(usable, memory.available_bytes)
