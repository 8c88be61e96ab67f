"""Judgement of a model on a batch: its loss and its metrics."""

from __future__ import annotations

from typing import Any

from torch import nn

from launch.data.batch import Batch
from launch.use_cases._base import UseCase, is_own


class Judge:
    """Computes loss and metrics of validation batches.

    Args:
        case: What is trained. Where it has a `UseCase.step` of its own, its metrics are given what
            the model gave last in it, and the batch.
        model: The model, as it is to be judged.
    """

    def __init__(self, case: UseCase, model: nn.Module) -> None:
        self._case = case
        self._model = model
        self._has_step = is_own(case, "step")

    def judge(self, batch: Batch) -> tuple[float, dict[str, float]]:
        """Return the mean loss and the metrics of a batch on the model's device."""
        if not self._has_step:
            inputs, targets = batch
            output = self._model(inputs)
            return self._case.loss(output, targets).item(), self._case.metrics(output, targets)
        if not is_own(self._case, "metrics"):
            return self._case.step(self._model, batch).item(), {}
        outputs: list[Any] = []
        hook = self._model.register_forward_hook(lambda _, __, given: outputs.append(given))
        try:
            loss = self._case.step(self._model, batch).item()
        finally:
            hook.remove()
        return loss, self._case.metrics(outputs[-1] if outputs else None, batch)
