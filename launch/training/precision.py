"""In which precision does a step compute?"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from launch.plan import Plan


def autocast(plan: Plan, device_type: str) -> torch.autocast:
    """Give the context in which forward pass and loss are computed."""
    return torch.autocast(device_type, torch.bfloat16, enabled=plan.precision == "bf16")


def settle_precision(plan: Plan) -> None:
    """Set what holds for the whole process, before the first operator."""
    if plan.precision == "bf16_internal":
        _let_round("bf16")


@contextlib.contextmanager
def internal_bf16() -> Iterator[None]:
    """Let oneDNN round inside of its operators, in this block only."""
    _let_round("bf16")
    try:
        yield
    finally:
        _let_round("none")


def _let_round(precision: str) -> None:
    torch.backends.mkldnn.conv.fp32_precision = precision  # type: ignore[attr-defined]
    torch.backends.mkldnn.matmul.fp32_precision = precision  # type: ignore[attr-defined]
