"""Check of a loss: that of a batch is the mean of its halves', each with its weight.

Micro-batches, workers and nodes compute the gradients of parts of a batch, and add them. That gives
the gradient of the whole batch only where the loss is a mean over samples, or over what the use
case's ``weight`` gives. Sums, class weights, ignored labels and token means are none: without a
word they train another model with each plan.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.dropout import _DropoutNd
from torch.utils.data import Dataset

from launch.data.batch import Batch, describe_batch, move_batch, split_batch
from launch.description.extreme_samples import ExtremeSamples, find_extreme_samples
from launch.errors import UseCaseError
from launch.training.loss import weigh
from launch.use_cases._base import UseCase, is_own
from launch.use_cases._imports import find_users_line

_SAMPLES, _FEW_SAMPLES = 7, 4
"""Samples of a batch: an odd number, so that its halves differ, where that does not take long; else
two of each half."""

_LONG_S = 1.0
"""Time of two samples from which a model takes long, and of the check after which no other batch is
begun."""

_UNLIKE_BATCHES = 3
"""Batches with extreme samples: a label that is seldom ignored is in no batch of a few others."""

_GRADIENT_ELEMENTS = 1 << 20
"""Elements of the gradients that are compared: those of the last parameters."""

_LOSS_TOLERANCE = 1e-3
_GRADIENT_TOLERANCE = 1e-2
"""Relative differences. Kernels for different batches differ by up to 1e-3, in TF32 on GPUs too;
halves of seven samples with different weights, by 0.1 and more."""

_NOISE_FACTOR, _NOISE_SEEDS = 10.0, (1, 2, 3)
"""Tolerance of a step that draws random numbers, in the largest difference that another seed makes:
a single one is small by chance."""


def check_loss(case: UseCase, model: nn.Module, dataset: Dataset[Any], spec: str) -> None:
    """Compare the loss of a batch with those of its halves; on a GPU where that can be done.

    What a GPU finds wrong counts where the CPU finds it too, or cannot tell: rounding to TF32 goes
    another way with other kernels, which a GPU may choose for the halves.

    Args:
        case: What is trained.
        model: Fresh; its buffers may change.
        dataset: Training samples.
        spec: Name of the use case in errors.

    Raises:
        UseCaseError: The user's code fails on a batch, or the loss does not add up.
    """
    refusal: UseCaseError | None = None
    with torch.random.fork_rng(devices=[]):
        if torch.cuda.is_available():
            try:
                # A copy: some errors, such as a wrong label, leave no tensor of a GPU readable.
                _LossCheck(case, deepcopy(model), dataset, spec, torch.device("cuda")).run()
            except Exception as error:  # noqa: BLE001 - full or taken, or the user's code
                refusal = error if isinstance(error, UseCaseError) else None
            else:
                return
        try:
            _LossCheck(case, model, dataset, spec, torch.device("cpu")).run()
        except _RunError as error:
            raise refusal or UseCaseError(str(error)) from error.__cause__


class _RunError(Exception):
    """The user's code has failed on a batch, perhaps only on this device."""


@dataclass(frozen=True, slots=True)
class _Figures:
    """What a step makes of a batch."""

    loss: float
    weight: float
    gradients: Sequence[Tensor]

    @property
    def is_finite(self) -> bool:
        return math.isfinite(self.loss) and all(bool(g.isfinite().all()) for g in self.gradients)


class _LossCheck:
    def __init__(
        self,
        case: UseCase,
        model: nn.Module,
        dataset: Dataset[Any],
        spec: str,
        device: torch.device,
    ) -> None:
        self._case = case
        self._dataset = dataset
        self._spec = spec
        self._device = device
        self._model = model.to(device)
        self._trained = [p for p in model.parameters() if p.requires_grad]
        sizes = torch.tensor([p.numel() for p in reversed(self._trained)]).cumsum(0)
        last = max(1, int((sizes <= _GRADIENT_ELEMENTS).sum()))
        self._chosen = self._trained[-last:]

    def run(self) -> None:
        began = time.perf_counter()
        usual = min(self._case.default_batch, len(self._dataset))  # type: ignore[arg-type]
        self._set_mode(is_training=True)
        if not self._measure(self._read(self._spread(min(2, usual))), seed=0).gradients:
            self._chosen = self._trained  # the last ones are not in use
        is_slow = time.perf_counter() - began > _LONG_S
        size = _FEW_SAMPLES if is_slow else max(_FEW_SAMPLES, min(_SAMPLES, usual))
        extremes = find_extreme_samples(self._case, self._dataset)[:_UNLIKE_BATCHES]
        unlike = [self._make_unlike(one, size) for one in extremes]
        # First what tells most: a slow model has no time for another batch.
        if unlike and self._try(unlike[0]) and time.perf_counter() - began > _LONG_S:
            return
        try:
            self._compare(self._read(self._spread(size)))
        except _RunError:
            if size <= usual:
                raise
            return  # made for batches smaller than what can be compared with its halves
        for indices in unlike[1:]:
            if time.perf_counter() - began > _LONG_S:
                return
            self._try(indices)

    def _try(self, indices: Sequence[int]) -> bool:
        """Compare a batch of these samples, if it can be; tell whether it was.

        Raises:
            UseCaseError: The loss does not add up.
        """
        with suppress(_RunError):  # what few batches meet, a trial tells better
            return self._compare(self._read(indices))
        return False

    def _compare(self, batch: Batch) -> bool:
        """Compare a batch with its halves; tell whether all figures were finite.

        Raises:
            _RunError: The user's code fails.
            UseCaseError: The loss does not add up.
        """
        halves = self._split(batch)
        self._set_mode(is_training=True)
        if (figures := self._measure_all(batch, halves)) is None:
            return False
        if (reason := self._find_reason(batch, *figures)) is None:
            return True
        self._set_mode(is_training=False)  # where a layer looks at the whole batch in training
        with suppress(_RunError):  # there are models that can only be trained
            figures = self._measure_all(batch, halves)
            reason = None if figures is None else self._find_reason(batch, *figures)
        if reason is not None:
            raise UseCaseError(f"use case {self._spec}: {reason}{self._where()}")
        return True

    def _spread(self, size: int) -> list[int]:
        """Choose samples from the whole data set, some twice where it has fewer."""
        count = len(self._dataset)  # type: ignore[arg-type]
        return [count * number // size for number in range(size)]

    def _make_unlike(self, extremes: ExtremeSamples, size: int) -> list[int]:
        """Choose samples whose halves differ in what a loss may be a mean over.

        Of four, each half has one of the extremes, beside a sample that both have. Other samples
        could make up for the difference: with two classes, each half might have one of either.
        """
        others = self._spread(size - _FEW_SAMPLES)
        cut = (size + 1) // 2 - _FEW_SAMPLES // 2  # the first half has the odd sample
        first = [extremes.least, extremes.between, *others[:cut]]
        return [*first, extremes.greatest, extremes.between, *others[cut:]]

    def _read(self, indices: Sequence[int]) -> Batch:
        """Read samples, and make them a batch."""
        size = len(indices)
        read = getattr(self._dataset, "__getitems__", None)
        try:
            samples = read(indices) if read else [self._dataset[index] for index in indices]
        except Exception as error:
            raise self._error("dataset(train=True) fails at a sample", error) from error
        try:
            batch = self._case.collate(samples)
        except Exception as error:
            shown = f"samples like {describe_batch(samples[0])}"
            raise self._error(f"collate(samples) fails at {size} {shown}", error) from error
        try:
            found = self._case.size(batch)
        except Exception as error:
            raise self._error("size(batch) fails", error, batch) from error
        if found != size:
            raise _RunError(
                f"use case {self._spec}: {size} samples make {describe_batch(batch)}, of which "
                f"size(batch) is {found}: return tensors whose first dimension is {size} from "
                f"collate(samples), or {size} from size(batch)"
            )
        return batch

    def _split(self, batch: Batch) -> list[Batch]:
        try:
            return split_batch(batch, 2, self._case.size(batch))
        except UseCaseError as error:
            raise _RunError(f"use case {self._spec}: {error}") from error

    def _set_mode(self, *, is_training: bool) -> None:
        """Set the mode of the model; without what depends on chance or on the whole batch."""
        self._model.train(is_training)
        for module in self._model.modules():
            if isinstance(module, (_DropoutNd, _NormBase)):
                module.eval()

    def _measure_all(
        self, batch: Batch, halves: Sequence[Batch]
    ) -> tuple[_Figures, list[_Figures]] | None:
        """Measure a batch and its halves; ``None`` where one is not finite, or nothing counts.

        Raises:
            _RunError: The user's code fails.
        """
        whole = self._measure(batch, seed=0)
        parts = [self._measure(half, seed=0) for half in halves]
        counted = [part for part in parts if part.weight]
        if not whole.weight or not all(one.is_finite for one in (whole, *counted)):
            return None
        return whole, parts

    def _find_reason(self, batch: Batch, whole: _Figures, parts: Sequence[_Figures]) -> str | None:
        """Find why a batch is not the mean of its halves; ``None`` where it is.

        Raises:
            _RunError: The user's code fails.
        """
        counted = [part for part in parts if part.weight]
        weights = sum(part.weight for part in parts)
        if abs(weights - whole.weight) > _LOSS_TOLERANCE * whole.weight:
            return (
                f"weight(batch) is {whole.weight:g}, and of the batch's halves "
                f"{' and '.join(f'{part.weight:g}' for part in parts)}: return what adds up, such "
                "as the number of labels that count"
            )
        loss_error, gradient_error = _differences(whole, counted)
        if loss_error <= _LOSS_TOLERANCE and gradient_error <= _GRADIENT_TOLERANCE:
            return None
        others = [_differences(whole, [self._measure(batch, seed)]) for seed in _NOISE_SEEDS]
        loss_noise, gradient_noise = map(max, zip(*others, strict=True))
        if (
            loss_error <= _LOSS_TOLERANCE + _NOISE_FACTOR * loss_noise
            and gradient_error <= _GRADIENT_TOLERANCE + _NOISE_FACTOR * gradient_noise
        ):
            return None
        return self._explain(whole, counted, gradient_error)

    def _explain(self, whole: _Figures, parts: Sequence[_Figures], gradient_error: float) -> str:
        mean = sum(part.loss * part.weight for part in parts) / whole.weight
        total = sum(part.loss for part in parts)
        found = (
            f"the loss of a batch is {whole.loss:.5g}, and the mean of its halves' is {mean:.5g}; "
            f"their gradients differ by {100 * gradient_error:.2g} %"
        )
        if abs(total - whole.loss) <= _LOSS_TOLERANCE * abs(whole.loss):
            return f"{found}. It is a sum: return the mean, as reduction='mean' does"
        if is_own(self._case, "weight"):
            return f"{found}, each with its weight(batch): return what the mean of the loss is over"
        return (
            f"{found}. It is no mean over samples: return what it is a mean over from "
            "weight(batch), such as the labels that ignore_index leaves, the sum of their class "
            "weights, or the tokens; or return a mean over samples"
        )

    def _measure(self, batch: Batch, seed: int) -> _Figures:
        torch.default_generator.manual_seed(seed)
        if self._device.type == "cuda":  # else none is asked: one that a wrong label broke raises
            torch.cuda.manual_seed_all(seed)
        try:
            placed = move_batch(batch, self._device, torch.preserve_format)
            loss = self._case.step(self._model, placed)
            if not isinstance(loss, Tensor) or loss.dim():
                is_tensor = isinstance(loss, Tensor)
                shown = describe_batch(loss) if is_tensor else type(loss).__name__
                raise UseCaseError(f"the loss is {shown}: return a scalar, the mean")
            gradients = torch.autograd.grad(loss, self._chosen, allow_unused=True)
        except Exception as error:
            name = "step(model, batch)" if is_own(self._case, "step") else "the model or the loss"
            raise self._error(f"{name} fails", error, batch) from error
        try:
            weight = weigh(self._case, placed)
        except Exception as error:
            raise self._error("weight(batch) fails", error, batch) from error
        dense = [g.to_dense() if g.is_sparse else g for g in gradients if g is not None]
        reals = [torch.view_as_real(g.resolve_conj()) if g.is_complex() else g for g in dense]
        return _Figures(loss.item(), weight, reals)

    def _error(self, what: str, error: Exception, batch: Batch = None) -> _RunError:
        said = " ".join(str(error).split())[:500]
        kind = "" if isinstance(error, UseCaseError) else f"{type(error).__name__}: "
        line = find_users_line(error, self._spec)
        of = "" if batch is None else f" on a batch of {describe_batch(batch)}"
        return _RunError(
            f"use case {self._spec}: {what}{of}: {kind}{said}{f' ({line})' if line else ''}: fix it"
        )

    def _where(self) -> str:
        """Give file and line of the loss."""
        method = getattr(self._case, "step" if is_own(self._case, "step") else "loss")
        code = getattr(method, "__code__", None)
        return f" ({code.co_filename}, line {code.co_firstlineno})" if code else ""


def _differences(whole: _Figures, parts: Sequence[_Figures]) -> tuple[float, float]:
    """Return the relative differences of loss and gradients between a batch and its parts."""
    total = sum(part.weight for part in parts)
    mean = sum(part.loss * part.weight for part in parts) / total
    size = max(abs(whole.loss), sum(abs(part.loss) * part.weight for part in parts) / total)
    loss_error = abs(mean - whole.loss) / size if size else 0.0
    difference = square = 0.0
    if any(len(part.gradients) != len(whole.gradients) for part in parts):
        return loss_error, 0.0  # parameters that not every batch uses
    for number, gradient in enumerate(whole.gradients):
        mine = [part.gradients[number] * (part.weight / total) for part in parts]
        difference += float((sum(mine) - gradient).double().square().sum())
        square += max(
            float(gradient.double().square().sum()),
            sum(float(one.double().norm()) for one in mine) ** 2,
        )
    return loss_error, math.sqrt(difference / square) if square else 0.0
