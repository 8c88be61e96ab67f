"""Estimate of the gradient noise scale from the gradients of parts of a step. Needs no torch.

A step averages the gradients of ``n`` parts, such as those of workers or of micro-batches::

    b_i     samples of part i                 B     samples of the step, the sum of all b_i
    g_i     mean gradient of part i           g     mean gradient of the step, sum of b_i g_i / B
    G       gradient of the loss over all samples there are
    tr(C)   trace of the covariance of the gradients of single samples

The more samples a mean is over, the less noise is in it: ``E |g_i|^2 = |G|^2 + tr(C) / b_i`` and
``E |g|^2 = |G|^2 + tr(C) / B``. So these are unbiased, however unequal the parts::

    S       = (sum of b_i |g_i|^2 - B |g|^2) / (n - 1)      estimates tr(C)
    |G|^2   = |g|^2 - S / B
    scale   = tr(C) / |G|^2                                 in samples

Each step gives a pair of these, with much noise of its own. ``tr(C)`` and ``|G|^2`` are smoothed
one by one, since the mean of quotients is biased. The interval is Fieller's, for a quotient of two
means that depend on each other. It has no upper end where the lower quantity may be 0: then there
is no scale.

Sources: McCandlish, Kaplan, Amodei et al., "An Empirical Model of Large-Batch Training", 2018,
https://arxiv.org/abs/1812.06162, appendix A, which has parts of two sizes; Qiao et al., "Pollux",
OSDI 2021, https://arxiv.org/abs/2008.12260; Fieller, "Some Problems in Interval Estimation", 1954,
https://doi.org/10.1111/j.2517-6161.1954.tb00159.x.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from probes.timing import student_quantile

DECAY = 0.98
"""Weight of a measurement against that of the next: some 50 measurements count."""

DECAY_OF_EVERY_STEP = 0.995
"""Where every step is measured: 200 of them count, still few of an epoch."""

COST_LIMIT = 0.004
"""Share of the steps' time that measuring may take. Half a percent is promised."""

EXCHANGED = 7
"""Numbers that the workers of all nodes add up: see `launch.training.averaging.noise_meter`."""

_LEAST = 5
"""Measurements before an interval says anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepNoise:
    """What one step shows."""

    variance: float
    """S, which estimates tr(C). By chance it may be below 0."""
    square: float
    """Estimate of |G|^2; below 0 where there is more noise than gradient."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseScale:
    """Gradient noise scale of a training at some time."""

    scale: float | None
    """In samples; ``None`` while |G|^2 is not clearly above 0."""
    low: float | None = None
    """Lower end of the 95 % interval; ``None`` where there is no scale."""
    high: float | None = None
    variance: float | None
    """Smoothed S; ``None`` where it is not on record."""
    square: float | None
    """Smoothed |G|^2; likewise."""
    measurements: int
    """Since the training began, or was resumed."""
    caveat: str | None = None
    """Why the scale may be wrong, such as ``BatchNorm``."""


def step_noise(
    weighted_squares: float, mean_square: float, *, parts: int, batch: int
) -> StepNoise | None:
    """Give what a step shows of the noise; ``None`` where it shows nothing.

    Args:
        weighted_squares: Sum over the parts of ``b_i / B`` times ``|g_i|^2``.
        mean_square: ``|g|^2``.
        parts: Their number, n.
        batch: Samples of the step, B.
    """
    if parts < 2 or not (math.isfinite(weighted_squares) and math.isfinite(mean_square)):
        return None
    variance = batch * (weighted_squares - mean_square) / (parts - 1)
    return StepNoise(variance=variance, square=mean_square - variance / batch)


class NoiseEstimate:
    """Smoothed noise scale: exponential moving averages of what steps show.

    Args:
        caveat: See `NoiseScale`.
        decay: Weight of a measurement against that of the next.
    """

    def __init__(self, *, caveat: str | None = None, decay: float = DECAY) -> None:
        self._caveat = caveat
        self._decay = decay
        self._count = 0
        self._weights = [0.0, 0.0]
        """Sums of the weights, and of their squares."""
        self._sums = [0.0] * 2
        """Of S and |G|^2, weighted."""
        self._squared = [0.0] * 5
        """Sums with the squares of the weights: of S, |G|^2, S S, S |G|^2, |G|^2 |G|^2."""

    def add(self, step: StepNoise) -> None:
        """Add what a step shows."""
        s, g = step.variance, step.square
        d, d2 = self._decay, self._decay**2
        self._count += 1
        self._weights = [self._weights[0] * d + 1, self._weights[1] * d2 + 1]
        self._sums = [old * d + new for old, new in zip(self._sums, (s, g), strict=True)]
        new_squares = (s, g, s * s, s * g, g * g)
        self._squared = [o * d2 + n for o, n in zip(self._squared, new_squares, strict=True)]

    def value(self) -> NoiseScale | None:
        """Give the scale so far; ``None`` before there is a measurement."""
        if not self._count:
            return None
        total = self._weights[0]
        variance, square = (each / total for each in self._sums)
        bounds = self._fieller(variance, square)
        return NoiseScale(
            scale=None if bounds is None else max(0.0, variance / square),
            low=None if bounds is None else max(0.0, bounds[0]),
            high=None if bounds is None else max(0.0, bounds[1]),
            variance=variance,
            square=square,
            measurements=self._count,
            caveat=self._caveat,
        )

    def _fieller(self, s: float, g: float) -> tuple[float, float] | None:
        """Give the ends of the interval of s / g; ``None`` where it has none."""
        if self._count < _LEAST or g <= 0:
            return None
        total, squares = self._weights
        count = total**2 / squares
        """Equal measurements that would be worth as much."""
        unbiased = count / (count - 1) / total**2
        x, y, xx, xy, yy = self._squared
        var_s = (xx - 2 * s * x + s * s * squares) * unbiased
        cov = (xy - s * y - g * x + s * g * squares) * unbiased
        var_g = (yy - 2 * g * y + g * g * squares) * unbiased
        t2 = student_quantile(max(1, int(count) - 1)) ** 2
        a, b, c = g * g - t2 * var_g, s * g - t2 * cov, s * s - t2 * var_s
        if a <= 0:
            return None
        half = math.sqrt(max(0.0, b * b - a * c))
        return (b - half) / a, (b + half) / a
