"""Judgement of a model on a batch: its loss and its metrics."""

from __future__ import annotations

from typing import Any

from torch import nn

from launch.data.batch import Batch
from launch.use_cases._base import UseCase, is_own


def judge(case: UseCase, model: nn.Module, batch: Batch) -> tuple[float, dict[str, float]]:
    """Return the mean loss and the metrics of a validation batch on the model's device.

    Where the use case has a `UseCase.step` of its own, its metrics are given the last output of the
    model in that step, and the batch.
    """
    if not is_own(case, "step"):
        inputs, targets = batch
        output = model(inputs)
        return case.loss(output, targets).item(), case.metrics(output, targets)
    if not is_own(case, "metrics"):
        return case.step(model, batch).item(), {}
    outputs: list[Any] = []
    hook = model.register_forward_hook(lambda _, __, given: outputs.append(given))
    try:
        loss = case.step(model, batch).item()
    finally:
        hook.remove()
    return loss, case.metrics(outputs[-1] if outputs else None, batch)
