"""Precision in which a step computes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from launch.plan import Plan


def autocast(plan: Plan, device_type: str) -> torch.autocast:
    """Make the context in which forward pass and loss are computed."""
    return torch.autocast(device_type, torch.bfloat16, enabled=plan.precision == "bf16")


def set_precision(plan: Plan) -> None:
    """Set the precision of the whole process, before the first operator."""
    if plan.precision == "bf16_internal":
        _set_internal_precision("bf16")


@contextlib.contextmanager
def internal_bf16() -> Iterator[None]:
    """Make oneDNN round inside of its operators, in this block only."""
    _set_internal_precision("bf16")
    try:
        yield
    finally:
        _set_internal_precision("none")


def _set_internal_precision(precision: str) -> None:
    torch.backends.mkldnn.conv.fp32_precision = precision  # type: ignore[attr-defined]
    torch.backends.mkldnn.matmul.fp32_precision = precision  # type: ignore[attr-defined]
