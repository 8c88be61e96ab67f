"""In which precision does a step compute?"""

from __future__ import annotations

import torch

from launch.plan import Plan


def autocast(plan: Plan, device_type: str) -> torch.autocast:
    """Give the context in which forward pass and loss are computed."""
    return torch.autocast(device_type, torch.bfloat16, enabled=plan.precision == "bf16")


def settle_precision(plan: Plan) -> None:
    """Set what holds for the whole process, before the first operator."""
    if plan.precision == "bf16_internal":
        torch.backends.mkldnn.conv.fp32_precision = "bf16"  # type: ignore[attr-defined]
        torch.backends.mkldnn.matmul.fp32_precision = "bf16"  # type: ignore[attr-defined]
