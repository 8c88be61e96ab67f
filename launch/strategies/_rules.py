"""Rules for the plans of a strategy, which several strategies share."""

from __future__ import annotations

from launch.errors import InvalidPlanError
from launch.plan import Plan


def require(plan: Plan, **values: int) -> None:
    """Check that settings have the only value that the strategy gives meaning to.

    Raises:
        InvalidPlanError: One has another value.
    """
    for name, value in values.items():
        if (found := getattr(plan, name)) != value:
            raise InvalidPlanError(
                f"strategy={plan.strategy} and {name}={found}: use {name}={value}"
            )


def require_options(plan: Plan, *known: str) -> None:
    """Refuse options that the strategy gives no meaning to.

    Raises:
        InvalidPlanError: It has some.
    """
    if unknown := sorted(plan.options.keys() - set(known)):
        remedy = f"use {', '.join(known)}" if known else "it has none"
        raise InvalidPlanError(
            f"strategy={plan.strategy} and options {', '.join(unknown)}: {remedy}"
        )


def require_devices(plan: Plan, *counts: int) -> None:
    """Check that a plan names as many devices as its strategy can use.

    Raises:
        InvalidPlanError: It names another number of devices.
    """
    if len(plan.devices) not in counts:
        allowed = " or ".join(map(str, sorted(set(counts))))
        raise InvalidPlanError(
            f"strategy={plan.strategy} and devices={_listed(plan)}: name {allowed} of them"
        )


def require_cpu(plan: Plan) -> None:
    """Refuse a plan that names another device than the CPU.

    Raises:
        InvalidPlanError: It does.
    """
    if set(plan.devices) != {"cpu"}:
        raise InvalidPlanError(
            f"strategy={plan.strategy} and devices={_listed(plan)}: use cpu, or a strategy for GPUs"
        )


def require_distinct_devices(plan: Plan, count: int) -> None:
    """Check that each worker has a GPU of its own; ``cpu`` may stand for all of them.

    Raises:
        InvalidPlanError: Two workers would share a GPU, one would have none, or more than one.
    """
    if plan.devices == ("cpu",):
        return
    require_devices(plan, count)
    if "cpu" in plan.devices or len(set(plan.devices)) < count:
        raise InvalidPlanError(
            f"strategy={plan.strategy} and devices={_listed(plan)}: name {count} different GPUs, "
            "one per process, or cpu once for all"
        )


def _listed(plan: Plan) -> str:
    return ",".join(plan.devices)
