"""Meter of the gradient noise: watches the gradients of a worker's parts in some of the steps.

In a measured step, hooks on the parameters see each gradient when autograd has just computed it,
and take its norm. Nothing is changed and nothing kept: a training that is measured has the same
weights, bit by bit, as one that is not. What the workers saw is added up where they exchange their
losses anyway. The norm of the average is known when the parameters are updated, which may be as
late as in the next step, so it travels with the next step's loss.

Steps are measured so seldom that measuring takes less than `COST_LIMIT` of the time. What it takes
is by how much a measured step and the next are longer than others, which includes workers that wait
for one another and caches that have to be filled again. Until a few are known, it is at least what
workers see of it by their own clocks. They agree on the next measured step by what they exchange.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.hooks import RemovableHandle

from launch.local_group.group import LocalGroup
from launch.noise_scale.estimate import (
    DECAY,
    DECAY_OF_EVERY_STEP,
    EXCHANGED,
    NoiseEstimate,
    NoiseScale,
    step_noise,
)
from launch.training.averaging.clipping import add_squares, elements

_FIRST_STEP = 3
"""Steps before the first measurement. The first one's time is of no use."""

_MOST_STEPS = 10_000
"""Between two measurements."""

_SMOOTHING = 0.4
"""Weight of the latest time of a step, or of a measurement."""

_MOST_GROWTH = 2.0
"""Most that the time of a step counts, in usual steps: between two epochs is a validation."""

_LEAST_WEIGHT = 0.05
"""Of the latest measurement in the mean of what they cost: single steps vary by more than that."""

_HOOK_S = 3e-6
"""Time that autograd needs to call a hook, which the hook cannot see."""

_CHUNK = 1 << 18
"""Elements whose squares are summed at once: in float32, longer sums lose figures."""


@dataclass(slots=True)
class _Measured:
    """A measured step whose average is not known yet."""

    batch: int
    weighted_squares: float = math.nan
    parts: int = 0


class NoiseMeter:
    """Measures the gradient noise scale. One for each worker, or replica on a thread.

    In each step: `start_step`; `begin_part` before each backward pass, or `add_part` after them;
    `offer`, whose numbers are added over all workers of all nodes, and `take` with the sums; and
    `add_average` with the parts of the averaged gradient that no other worker of the node adds,
    before the next `offer`.

    Args:
        model: What is trained.
        is_first: Whether this is the node's first worker.
        cost_limit: See `COST_LIMIT`; with 1 every step is measured.

    Attributes:
        is_measuring: Whether this step is measured.
        watched: Parameters whose gradients the last measured step has shown it.
    """

    def __init__(self, model: nn.Module, *, is_first: bool, cost_limit: float) -> None:
        self._is_first = is_first
        self._cost_limit = cost_limit
        decay = DECAY if cost_limit < 1 else DECAY_OF_EVERY_STEP
        has_batch_norm = any(isinstance(module, _BatchNorm) for module in model.modules())
        caveat = "BatchNorm, whose samples depend on one another" if has_batch_norm else None
        self._estimate = NoiseEstimate(caveat=caveat, decay=decay)
        self._steps = 0
        self._next = _FIRST_STEP
        self._started: float | None = None
        self._step_s = self._cost_s = self._extra_s = 0.0
        self._is_longer = False
        """Whether this step is measured, or exchanges what the last one showed."""
        self._longer_steps = 0
        self._measured_s = 0.0
        """Time of the measurement that is being made."""
        self._batch = 0
        self.is_measuring = False
        self.watched: list[nn.Parameter] = []
        self._handles: list[RemovableHandle] = []
        self._norms: list[Tensor] = []
        self._seen: set[int] = set()
        self._share: float | None = None
        self._squares, self._parts, self._shares = 0.0, 0, 0.0
        self._pending: _Measured | None = None
        self._is_new = False
        self._average = 0.0

    @property
    def awaits_average(self) -> bool:
        """Whether `add_average` is to be called."""
        return self._pending is not None

    @property
    def needs_exchange(self) -> bool:
        """Whether this step's `offer` and `take` have to be called; the same on each worker."""
        return self.is_measuring or self._pending is not None

    def value(self) -> NoiseScale | None:
        """Give the noise scale so far."""
        return self._estimate.value()

    def take_is_new(self) -> bool:
        """Tell whether there was a measurement since this was last asked."""
        is_new, self._is_new = self._is_new, False
        return is_new

    def start_step(self, batch: int, watched: Iterable[nn.Parameter] = ()) -> None:
        """Begin a step.

        Args:
            batch: Samples of all nodes.
            watched: Parameters that the step updates, where each of its backward passes is a part;
                none where `add_part` is called. Those that are frozen now are left out.
        """
        now = time.perf_counter()
        if self._started is not None and self._steps > 1:
            elapsed = now - self._started
            elapsed = min(elapsed, _MOST_GROWTH * self._step_s or elapsed)
            if self._is_longer:
                self._longer_steps += 1
                weight = max(1 / self._longer_steps, _LEAST_WEIGHT)
                self._extra_s += weight * (elapsed - self._step_s - self._extra_s)
            else:
                self._step_s = _smoothed(self._step_s, elapsed)
        self._started = now
        self._batch = batch
        self.is_measuring = self._steps == self._next
        self._is_longer = self.needs_exchange
        self._steps += 1
        if not self.is_measuring:
            return
        self._squares, self._parts, self._shares, self._share = 0.0, 0, 0.0, None
        self.watched = [parameter for parameter in watched if parameter.requires_grad]
        self._handles = [
            parameter.register_hook(  # type: ignore[no-untyped-call]
                self._make_hook(number)
            )
            for number, parameter in enumerate(self.watched)
        ]
        self._measured_s += time.perf_counter() - now

    def begin_part(self, share: float) -> None:
        """Begin a backward pass: what the hooks see from now on belongs to it.

        Args:
            share: Of its loss in that of the step, by which its gradient is scaled.
        """
        if self.is_measuring:
            self._end_part()
            self._share = share

    def add_part(self, gradients: Iterable[Tensor], share: float, *, counts: bool = True) -> None:
        """Add the gradient of a whole part, or this worker's piece of it.

        Args:
            gradients: Scaled as the loss is.
            share: As in `begin_part`.
            counts: Whether no other worker counts this part.
        """
        started = time.perf_counter()
        if share:
            self._squares += sum(map(_square_sum, gradients)) / share
            self._parts += counts
            self._shares += share * counts
        self._measured_s += time.perf_counter() - started

    def add_average(self, gradients: Iterable[Tensor]) -> None:
        """Add a piece of the average of all gradients, before its norm is limited.

        Args:
            gradients: Of elements that were not added in this step.
        """
        started = time.perf_counter()
        self._average += sum(map(_square_sum, gradients))
        self._measured_s += time.perf_counter() - started

    def add_average_squares(self, squares: float) -> None:
        """Add a piece of the average of which the sum of the squares is known."""
        self._average += squares

    def offer(self) -> tuple[float, ...]:
        """Give this worker's numbers, when the gradients of the step are computed.

        Returns:
            Sum of the squares of the parts, number of parts, their shares, squares of the last
            step's average, number of such averages, time of a measurement, time of a step.
        """
        if self.is_measuring:
            self._end_part()
            started = time.perf_counter()
            for handle in self._handles:
                handle.remove()
            self._handles = []
            self._measured_s += time.perf_counter() - started
            self._cost_s = _smoothed(self._cost_s, self._measured_s)
            self._measured_s = 0.0
        average, self._average = self._average, 0.0
        parts = (self._squares, self._parts, self._shares) if self.is_measuring else (0.0, 0, 0.0)
        cost_s = max(self._cost_s, 2 * self._extra_s)
        return (*parts, average, float(self._is_first), cost_s, self._step_s)

    def take(self, sums: Sequence[float]) -> None:
        """Take the sums of what all workers of all nodes offered; the same on each of them."""
        squares, parts, shares, average, nodes, cost_s, step_s = sums
        if self._pending is not None:
            found = step_noise(
                self._pending.weighted_squares,
                average / nodes,  # each of which has the whole
                parts=self._pending.parts,
                batch=self._pending.batch,
            )
            if found is not None:
                self._estimate.add(found)
                self._is_new = True
        self._pending = None
        if self.is_measuring:
            # 1, or the weight that the sum of the gradients is divided by.
            squares = squares / shares if shares else math.nan
            self._pending = _Measured(self._batch, squares, int(parts))
            is_limited = self._cost_limit < 1 and step_s > 0
            pause = math.ceil(cost_s / (self._cost_limit * step_s)) if is_limited else 1
            self._next = self._steps - 1 + min(max(pause, 1), _MOST_STEPS)

    def _make_hook(self, number: int) -> Callable[[Tensor], None]:
        def see_gradient(gradient: Tensor) -> None:
            started = time.perf_counter()
            if number in self._seen:  # a gradient in two pieces, whose squares do not add up
                self._squares = math.nan
            self._seen.add(number)
            self._norms.extend(_norms(gradient))
            self._measured_s += time.perf_counter() - started + _HOOK_S

        return see_gradient

    def _end_part(self) -> None:
        """Add the squares that the hooks have seen since `begin_part`."""
        started = time.perf_counter()
        if self._share:
            self._squares += add_squares(self._norms) / self._share
            self._parts += 1
            self._shares += self._share
        self._norms.clear()
        self._seen.clear()
        self._share = None
        self._measured_s += time.perf_counter() - started


class NoiseExchange:
    """Adds up what the meters of one node's workers offer, where it is the only node.

    Collective: every worker of ``group`` makes one, and calls `run` in each step, before anything
    in the step's update. The workers have to meet once more before the next step's.
    """

    def __init__(self, group: LocalGroup) -> None:
        self._group = group
        memory = group.share_bytes(8 * EXCHANGED * group.size).numpy().view(np.float64)
        self._rows = memory.reshape(group.size, EXCHANGED)

    def run(self, meter: NoiseMeter) -> None:
        """Exchange with this worker's meter, in steps in which there is something to exchange."""
        if meter.needs_exchange:
            self._rows[self._group.local_rank] = meter.offer()
            self._group.barrier()
            meter.take(self._rows.sum(0).tolist())


def _square_sum(gradient: Tensor) -> float:
    """Sum the squares of all elements, those of pieces in float32 and the pieces' in float64."""
    return add_squares(_norms(gradient))


@torch.no_grad()
def _norms(gradient: Tensor) -> list[Tensor]:
    """Give the norms of the pieces of a gradient."""
    gradient = elements(gradient)
    if gradient.numel() <= _CHUNK:
        return [torch.linalg.vector_norm(gradient)]
    flat = gradient.detach().reshape(-1) if gradient.is_contiguous() else _flat(gradient)
    return [torch.linalg.vector_norm(piece) for piece in torch.split(flat, _CHUNK)]


def _flat(gradient: Tensor) -> Tensor:
    """View the elements of a gradient in any order, copied where they have gaps."""
    strides = gradient.stride()
    order = sorted(range(gradient.dim()), key=lambda i: -strides[i])
    return gradient.detach().permute(order).reshape(-1)


def _smoothed(old: float, new: float) -> float:
    return new if old == 0 else old + _SMOOTHING * (new - old)
