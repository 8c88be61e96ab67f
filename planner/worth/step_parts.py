"""Parts of a step's time: what must be computed and moved at the measured rates, and the rest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from launch.case_facts import CaseFacts
from launch.plan import Plan
from planner.quantities import format_bytes
from probes.cuda_devices import are_alike
from probes.hardware import Hardware, Speeds

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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rates:
    """What all that a plan computes on can do together; ``None`` where that is not known."""

    flop_per_s: float | None = None
    copy_bytes_per_s: float | None = None
    input_bytes_per_s: float | None = None
    """From the host to GPUs."""


def split_step(
    plan: Plan,
    step_s: float,
    facts: CaseFacts | None,
    node: Hardware | None,
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
    if facts is not None and node is not None and node.speeds is not None:
        busy_s = step_s - sum(part.time_s for part in parts)
        speeds = node.speeds
        rates = _gpu_rates(plan, node, speeds) if plan.gpus else _core_rates(plan, speeds)
        parts += [_at_most(busy_s, floor) for floor in _find_floors(plan, facts, rates)]
    rest_s = step_s - sum(part.time_s for part in parts)
    if any(part.time_s > 0 for part in parts) and rest_s > 0:
        rest = StepPart(name="not explained", time_s=rest_s, source="what is left", is_floor=False)
        parts.append(rest)
    return parts


def _find_floors(plan: Plan, facts: CaseFacts, rates: _Rates) -> Iterator[StepPart]:
    if facts.flop_per_sample is not None and rates.flop_per_s is not None:
        flop = facts.flop_per_sample * plan.node_batch
        yield StepPart(
            name="computing",
            time_s=flop / rates.flop_per_s,
            source=f"{_scaled(flop)}FLOP at {_scaled(rates.flop_per_s)}FLOP/s",
        )
    moved = (
        ("weights, update", _update_bytes(plan, facts), rates.copy_bytes_per_s),
        ("sum over workers", _sum_bytes(plan, facts), rates.copy_bytes_per_s),
        ("input to GPU", _input_bytes(plan, facts), rates.input_bytes_per_s),
    )
    for name, num_bytes, bytes_per_s in moved:
        if num_bytes and bytes_per_s is not None:
            yield StepPart(
                name=name,
                time_s=num_bytes / bytes_per_s,
                source=f"{format_bytes(num_bytes)} at {format_bytes(round(bytes_per_s))}/s",
            )


def _update_bytes(plan: Plan, facts: CaseFacts) -> int:
    """Give the bytes that weights, gradients and optimizer move in a step, at least.

    Each micro-batch of each replica reads the weights forward and backward and writes a gradient;
    the update reads weights, gradient and momentum, and writes weights and momentum. Of an
    optimizer with more state than a momentum it is less than what moves. On GPUs each replica
    updates weights of its own.
    """
    passes = plan.replicas * plan.micro_batches
    updates = plan.replicas if plan.gpus else 1
    return facts.parameter_bytes * (3 * passes + 5 * updates)


def _sum_bytes(plan: Plan, facts: CaseFacts) -> int:
    """Give the bytes that a sum over replicas moves: all their gradients read, one written.

    None on GPUs: what moves between them is not measured.
    """
    if plan.gpus or plan.replicas == 1:
        return 0
    return facts.parameter_bytes * (plan.replicas + 1)


def _input_bytes(plan: Plan, facts: CaseFacts) -> int:
    """Give the bytes of a batch; 0 where it goes to GPUs as decoded pictures, or lies there."""
    return (facts.sample_bytes or 0) * plan.node_batch if plan.input == "files" else 0


def _at_most(busy_s: float, floor: StepPart) -> StepPart:
    """Give a floor, or what is left of it where the step took less than it."""
    if floor.time_s <= busy_s:
        return floor
    return replace(floor, time_s=busy_s, source=f"less than {floor.source}", is_floor=False)


def _core_rates(plan: Plan, speeds: Speeds) -> _Rates:
    if plan.precision == "fp32":
        rates = speeds.fp32_one_core_flop_per_s, speeds.fp32_all_cores_flop_per_s
    else:
        rates = speeds.bf16_one_core_flop_per_s, speeds.bf16_all_cores_flop_per_s
    copies = speeds.copy_one_core_bytes_per_s, speeds.copy_all_cores_bytes_per_s
    return _Rates(
        flop_per_s=_share_of_cores(*rates, plan.threads),
        copy_bytes_per_s=_share_of_cores(*copies, plan.threads),
    )


def _gpu_rates(plan: Plan, node: Hardware, speeds: Speeds) -> _Rates:
    """Give what a plan's GPUs can do together, each as much as the first, which was measured.

    However work is spread over equal GPUs, the most loaded one has its share or more.
    """
    if not are_alike(node.gpus) or any(gpu.mig_enabled for gpu in node.gpus):
        return _Rates()
    has_equal_slots = len({(gpu.pcie_generation, gpu.pcie_width) for gpu in node.gpus}) <= 1
    is_fp32 = plan.precision == "fp32"
    flop_per_s = speeds.gpu_fp32_flop_per_s if is_fp32 else speeds.gpu_bf16_flop_per_s
    input_bytes_per_s = speeds.host_to_device_bytes_per_s if has_equal_slots else None
    count = len(plan.gpus)
    return _Rates(
        flop_per_s=_times(flop_per_s, count),
        copy_bytes_per_s=_times(speeds.gpu_copy_bytes_per_s, count),
        input_bytes_per_s=_times(input_bytes_per_s, count),
    )


def _times(rate: float | None, count: int) -> float | None:
    return None if rate is None else rate * count


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
