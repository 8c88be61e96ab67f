"""Parts of a step's time: what must be computed and moved at the measured rates, and the rest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from launch.case_facts import CaseFacts
from launch.plan import Plan
from planner.quantities import format_bytes
from probes.hardware import Speeds

_PREFIXES = ("", "k", "M", "G", "T", "P", "E")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPart:
    """One part of a step."""

    name: str
    time_s: float

    source: str
    """What the time follows from, in a few words."""

    is_floor: bool = True
    """Whether the part cannot take less, rather than was measured."""


def split_step(
    plan: Plan,
    step_s: float,
    facts: CaseFacts | None,
    speeds: Speeds | None,
    *,
    input_share: float | None = None,
) -> list[StepPart]:
    """Split the time of a step, as far as floors are known; what they leave open is the last part.

    The floors are added up although a step may do two things at once. So the rest may come out
    below 0; it is then left out. What would by itself take longer than the step did is no floor.

    ``input_share`` is the part of the time in which steps waited for their samples, where that was
    measured; 0 stands for a script whose reading is not seen as well.
    """
    parts: list[StepPart] = []
    if input_share:
        waited = StepPart(
            name="waiting for input", time_s=input_share * step_s, source="measured", is_floor=False
        )
        parts.append(waited)
    # Limits of GPUs are not probed.
    if facts is not None and speeds is not None and not plan.gpus:
        busy_s = step_s - sum(part.time_s for part in parts)
        parts += [_at_most(busy_s, floor) for floor in _find_floors(plan, facts, speeds)]
    rest_s = step_s - sum(part.time_s for part in parts)
    if any(part.time_s > 0 for part in parts) and rest_s > 0:
        rest = StepPart(name="not explained", time_s=rest_s, source="what is left", is_floor=False)
        parts.append(rest)
    return parts


def _find_floors(plan: Plan, facts: CaseFacts, speeds: Speeds) -> Iterator[StepPart]:
    flop_per_s = _flop_per_s(plan, speeds)
    if facts.flop_per_sample is not None and flop_per_s is not None:
        flop = facts.flop_per_sample * plan.node_batch
        yield StepPart(
            name="computing",
            time_s=flop / flop_per_s,
            source=f"{_scaled(flop)}FLOP at {_scaled(flop_per_s)}FLOP/s",
        )
    bytes_per_s = _share_of_cores(
        speeds.copy_one_core_bytes_per_s, speeds.copy_all_cores_bytes_per_s, plan.threads
    )
    if bytes_per_s is None:
        return
    moved = {
        "weights, update": _update_bytes(plan, facts),
        "sum over workers": _sum_bytes(plan, facts),
    }
    for name, num_bytes in moved.items():
        if num_bytes:
            yield StepPart(
                name=name,
                time_s=num_bytes / bytes_per_s,
                source=f"{format_bytes(num_bytes)} at {format_bytes(round(bytes_per_s))}/s",
            )


def _update_bytes(plan: Plan, facts: CaseFacts) -> int:
    """Give the bytes that weights, gradients and optimizer move in a step, at least.

    Each micro-batch of each replica reads the weights forward and backward and writes a gradient;
    the update reads weights, gradient and momentum, and writes weights and momentum. Of an
    optimizer with more state than a momentum it is less than what moves.
    """
    passes = plan.replicas * plan.micro_batches
    return facts.parameter_bytes * (3 * passes + 5)


def _sum_bytes(plan: Plan, facts: CaseFacts) -> int:
    """Give the bytes that a sum over replicas moves: all their gradients read, one written."""
    return facts.parameter_bytes * (plan.replicas + 1) if plan.replicas > 1 else 0


def _at_most(busy_s: float, floor: StepPart) -> StepPart:
    """Give a floor, or what is left of it where the step took less than it."""
    if floor.time_s <= busy_s:
        return floor
    return replace(floor, time_s=busy_s, source=f"less than {floor.source}", is_floor=False)


def _flop_per_s(plan: Plan, speeds: Speeds) -> float | None:
    if plan.precision == "fp32":
        rates = speeds.fp32_one_core_flop_per_s, speeds.fp32_all_cores_flop_per_s
    else:
        rates = speeds.bf16_one_core_flop_per_s, speeds.bf16_all_cores_flop_per_s
    return _share_of_cores(*rates, plan.threads)


def _share_of_cores(one: float | None, every: float | None, threads: int) -> float | None:
    """Give the rate of some cores: so many times that of one, and no more than that of all."""
    if one is None or every is None:
        return None
    return min(one * threads, max(one, every))


def _scaled(value: float) -> str:
    """Write a number with a decimal prefix: ``527 G``."""
    power = 0
    while value >= 999.5 and power < len(_PREFIXES) - 1:
        value, power = value / 1000, power + 1
    return f"{value:.3g} {_PREFIXES[power]}"
