"""Terms of a plan: the parts that the logarithm of its time per sample is the sum of.

Each has a name that people can read, such as ``cpu: allocator=retain`` or ``threads: 2 to 4
replicas``, and a size, mostly 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache

from launch.plan import Plan
from launch.strategies import load_strategy, strategy_names

_LAYOUT = frozenset(
    ("strategy", "processes", "threads_per_process", "replicas", "node_batch", "micro_batches")
)
_NOT_ALONE = _LAYOUT | {"devices", "options", "input", "loader_workers"}
_FEW_LOADERS = 2
"""Loading processes of a worker on CPUs up to which each number counts by itself. More are tried
where two are too few, and begin with what those have shown."""

_SERIAL_PART = 0.02
"""Part of the work on a sample that the threads of one copy do not share (Amdahl's law): the more
threads a copy has, the more do several copies gain. An assumption, which trials correct."""

LAYOUT = "layout"
"""Name by which strategies say that a setting's worth depends on the number of workers."""


@dataclass(frozen=True, slots=True)
class PlanTerms:
    """Terms of one plan."""

    sizes: Mapping[str, float]
    """By the terms' names."""

    load: float
    """Workers that have to wait for the fixed part of a step, by sample of the batch. Stages have
    a part of it each, as of the work.

    With the fixed part ``r``, told in samples of one worker, a step of ``T(n) = a + b n`` takes
    ``1 + r load`` times what its samples alone would take.
    """

    fixed: Mapping[str, float]
    """Sizes of the terms whose sum is the logarithm of ``r``, by their names. Copies of the model
    have gradients to sum, once in a step whatever the batch."""

    bubble: float
    """What is known without a trial: the logarithm of the time in which ``s`` stages with ``m``
    micro-batches wait for one another, ``(m + s - 1) / m``."""


def terms_of(plan: Plan) -> PlanTerms:
    """Take a plan apart."""
    kind = kind_of(plan)
    workers = plan.threads if kind == "cpu" else len(plan.devices)
    return PlanTerms(
        sizes=dict(_sizes(plan, kind, workers)),
        load=workers / stages_of(plan) * (1 + plan.micro_batches) / 2 / plan.node_batch,
        fixed=_fixed(plan, kind),
        bubble=math.log1p((stages_of(plan) - 1) / plan.micro_batches),
    )


def kind_of(plan: Plan) -> str:
    """Name the kind of device that computes: ``cpu`` or ``gpu``."""
    return "cpu" if "cpu" in plan.devices else "gpu"


def copies_of(plan: Plan) -> int:
    """Count the copies of the model: one in each process of a script, which no strategy builds."""
    return plan.replicas if _is_built(plan.strategy) else max(plan.replicas, plan.processes)


def stages_of(plan: Plan) -> int:
    """Count the devices that one copy of the model lies on."""
    return max(1, plan.processes // copies_of(plan))


def settings_of(plan: Plan) -> dict[str, str]:
    """Name the values of the settings that count each by itself.

    Where samples come from and how many processes load them are one setting.
    """
    named = {f.name: str(getattr(plan, f.name)) for f in fields(plan) if f.name not in _NOT_ALONE}
    loaders = f" by {plan.loader_workers}" if plan.loader_workers else ""
    named["input"] = f"{plan.input}{loaders}"
    return named | {name: str(value) for name, value in plan.options.items()}


def _sizes(plan: Plan, kind: str, workers: int) -> Iterator[tuple[str, float]]:
    own = f"{plan.strategy} on {kind}"
    yield f"on {kind}", 1.0
    yield own, 1.0
    stages, copies = stages_of(plan), copies_of(plan)
    layout = dict(_doublings(workers, "workers"))
    for name, size in layout.items():
        yield f"{kind}: {name}", size
    for count, unit in ((copies, "replicas"), (stages, "stages")):
        for name, size in _doublings(count, unit):
            yield f"{kind}: {name}", size
            yield f"{own}: {name}", size
    for name, size in _doublings(plan.micro_batches, "micro-batches"):
        yield f"{own}: {name}", size
    yield f"{kind}: micro-batches doubled", math.log2(plan.micro_batches)
    yield f"{own}: {copies}x{stages}x{workers}", 1.0
    yield f"{kind}: batch doubled", math.log2(plan.node_batch)
    if kind == "cpu":  # whose caches hold so many
        threads = workers / (copies * stages)
        yield f"{kind}: serial part", math.log1p(_SERIAL_PART * (threads - 1))
        at_once = plan.node_batch / (copies * plan.micro_batches)
        yield f"{kind}: samples at once doubled", math.log2(at_once)
    few = plan
    if kind == "cpu" and plan.loader_workers > _FEW_LOADERS and _is_built(plan.strategy):
        few = replace(plan, loader_workers=_FEW_LOADERS)
        _, *more = _doublings(plan.loader_workers, "loaders")
        for name, size in more:
            yield f"{kind}: {name}", size
    settings = settings_of(few)
    for name, value in settings.items():
        yield f"{kind}: {name}={value}", 1.0
        yield f"{own}: {name}={value}", 1.0
    for one, other in _interactions(plan.strategy):
        if one in settings and other == LAYOUT:
            for name, size in layout.items():
                yield f"{kind}: {one}={settings[one]}, {name}", size
        elif one in settings and other in settings:
            yield f"{kind}: {one}={settings[one]}, {other}={settings[other]}", 1.0


def _fixed(plan: Plan, kind: str) -> dict[str, float]:
    names = (f"{kind}: fixed part", f"{plan.strategy} on {kind}: fixed part")
    doubled = math.log2(copies_of(plan))
    return dict.fromkeys(names, 1.0) | {f"{name}, replicas doubled": doubled for name in names}


def _doublings(count: int, unit: str) -> Iterator[tuple[str, float]]:
    """Give how far a count goes through each doubling up to it: 3 goes half through the second."""
    for power in range(max(0, math.ceil(math.log2(count)))):
        yield f"{2**power} to {2 ** (power + 1)} {unit}", min(1.0, math.log2(count) - power)


@cache
def _is_built(strategy: str) -> bool:
    """Tell whether a file builds the steps of a strategy."""
    return strategy in strategy_names()


@cache
def _interactions(strategy: str) -> Sequence[tuple[str, str]]:
    """Give the pairs of settings that a strategy names; none where today has no such strategy."""
    return load_strategy(strategy).interactions() if _is_built(strategy) else ()
