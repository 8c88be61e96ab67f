"""Check of bf16 in a training step of this model on this machine.

bf16 on CPUs has had kernels that were slow (pytorch #183815) and wrong (#169688, #163347), for
some shapes of some layers. So the check runs the layers of the use case, on its own samples.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from launch.data.batch import Batch
from launch.data.loading import read_batch
from launch.data.split import BatchSize
from launch.plan import MEMORY_FORMATS, Plan
from launch.training.autocast import internal_bf16
from launch.training.precision.figures import StepFigures
from launch.training.precision.operators import OperatorCheck, relative_error
from launch.training.replica import Replica, prepare_model
from launch.use_cases._base import UseCase

_STEP_S = 0.3
"""Longest step of the check, where the batch can be made so small. The check takes the time of
about five steps for each memory format."""

_NEGLIGIBLE = 1e-3
"""Share of the whole gradient's norm below which a parameter's gradient is not judged: that of a
bias in front of BatchNorm is zero but for rounding."""


class PrecisionCheck:
    """Makes the same step in fp32 and in other precisions.

    Args:
        plan: The check runs on its first device, with at most its batch.
        case: What is trained.
        data: Folder of its data.
    """

    def __init__(self, plan: Plan, case: UseCase, data: Path | None) -> None:
        self._plan = plan
        self._case = case
        torch.manual_seed(0)
        self._model = case.model()
        has_pictures = any(parameter.dim() == 4 for parameter in self._model.parameters())
        self._formats = MEMORY_FORMATS if has_pictures else MEMORY_FORMATS[:1]
        samples = _Samples(case, data)
        self._batch = samples.read(_Pair(plan, case, self._model).find_batch_size(samples))

    def measure(self, precision: str) -> Iterator[StepFigures]:
        """Compare a step in this precision with one in fp32, in each memory format that matters."""
        for memory_format in self._formats:
            plan = replace(self._plan, precision=precision, memory_format=memory_format)
            yield _Pair(plan, self._case, self._model).compare(self._batch)


class _Samples:
    """Training samples from the whole data set, the same ones each time."""

    def __init__(self, case: UseCase, data: Path | None) -> None:
        self._case = case
        self._dataset = case.dataset(data, train=True)
        self.count = len(self._dataset)  # type: ignore[arg-type]

    def read(self, size: int) -> Batch:
        chosen = [self.count * number // size for number in range(size)]
        return read_batch(self._dataset, chosen, self._case.collate)


class _Pair:
    """A model that makes the same step in two precisions.

    Dropout modules are left out, because their mask may depend on the precision; what else draws
    random numbers starts from the same seed.
    """

    def __init__(self, plan: Plan, case: UseCase, model: nn.Module) -> None:
        self._plan = plan
        self._case = case
        device = plan.devices[0]
        self._model = prepare_model(plan, model, device)
        for module in self._model.modules():
            if isinstance(module, _DropoutNd):
                module.eval()
        exact = replace(plan, precision="fp32")
        self._exact = Replica(exact, case, self._model, device)
        self._lower = Replica(plan, case, self._model, device)

    def find_batch_size(self, samples: _Samples) -> int:
        """Choose a batch whose step is short, from the time of one of a few samples."""
        few = min(2, samples.count)  # one alone has no variance for BatchNorm
        batch = samples.read(few)
        started = time.perf_counter()
        self._step(self._exact, batch)
        first_s = time.perf_counter() - started
        # It made the kernels too. That does not take so long on a CPU; on a GPU it loads libraries.
        if first_s > 2 * _STEP_S and torch.device(self._plan.devices[0]).type == "cpu":
            return few
        started = time.perf_counter()
        self._step(self._exact, batch)
        fits = int(few * _STEP_S / (time.perf_counter() - started))
        return max(few, min(fits, self._plan.node_batch, samples.count))

    def compare(self, batch: Batch) -> StepFigures:
        with OperatorCheck(self._model, self._plan.precision) as check:
            exact_loss, exact = self._step(self._exact, batch)
        is_internal = self._plan.precision == "bf16_internal"
        with internal_bf16() if is_internal else contextlib.nullcontext():
            loss, found = self._step(self._lower, batch)
        return StepFigures(
            memory_format=self._plan.memory_format,
            loss=loss,
            exact_loss=exact_loss,
            gradient_errors=_gradient_errors(found, exact),
            operators=check.figures,
        )

    def _step(self, replica: Replica, batch: Batch) -> tuple[float, dict[str, Tensor]]:
        self._model.zero_grad(set_to_none=True)
        torch.manual_seed(0)
        count = self._case.size(batch)
        loss = replica.gradients(batch, BatchSize(count, count)).loss
        parameters = self._model.named_parameters()
        return float(loss), {name: p.grad for name, p in parameters if p.grad is not None}


def _gradient_errors(found: dict[str, Tensor], exact: dict[str, Tensor]) -> dict[str, float]:
    sizes = {name: torch.linalg.vector_norm(gradient).item() for name, gradient in exact.items()}
    whole = sum(size**2 for size in sizes.values()) ** 0.5
    return {
        name: relative_error(found[name], gradient) if name in found else float("inf")
        for name, gradient in exact.items()
        if sizes[name] > _NEGLIGIBLE * whole
    }
