"""Effects: what each term of a plan does to its time, learned from trials.

The logarithm of a plan's time per sample is a sum: of the effects of its terms; of
``log(1 + r load)``, which is ``T(n) = a + b n`` for all batches at once; and of a small deviation
of the plan's own, for what no sum of terms explains. All are normal before the first trial, and a
trial shows the sum with some noise, so all are normal after it (Bayesian linear regression: Bishop,
"Pattern Recognition and Machine Learning", 2006, section 3.3). ``r`` is inside of a logarithm; it
is learned by repeating the regression with that term linear around the last estimate.

The noise and the size of the plans' own deviations are those that make the trials likeliest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray

from launch.plan import Plan
from planner.search.prior import Belief
from planner.search.terms import terms_of

Array = NDArray[np.float64]

_NOISES = (0.005, 0.01, 0.02, 0.04, 0.08, 0.16)
_USUAL_NOISE, _DOUBT = 0.03, 1.5
_OWN_DEVIATIONS = (0.01, 0.02, 0.04)
_LEAST_VARIANCE = 1e-12
_ROUNDS = 3
_LARGEST_STEP = 1.0
"""Of the estimate of a term between two rounds, so that they do not swing."""


@dataclass(frozen=True, slots=True)
class ObservedTime:
    """What one trial showed."""

    plan: Plan
    log_s: float
    """Logarithm of the time per sample."""

    weight: float = 1.0
    """Part of a trial that it counts as: less than 1 where it is of a machine or a use case that
    is only alike (a power prior: Ibrahim and Chen, 2000)."""

    study: str = ""
    """Whatever has a speed of its own; ``""`` is this search."""

    @classmethod
    def of(cls, plan: Plan, time_s: float, *, weight: float = 1.0, study: str = "") -> Self:
        """Take down a time per sample in seconds."""
        return cls(plan, math.log(time_s), weight, study)


@dataclass(slots=True)
class TermColumns:
    """Columns of the regression, one for each term that has come up.

    Args:
        belief: Gives what is believed of a term before any trial.
        worth: Gives by what the time of a sample is divided in a batch of so many, see
            `planner.time_to_loss.ranking`.
    """

    belief: Callable[[str], Belief]
    worth: Callable[[int], float] = lambda _: 1.0
    index: dict[str, int] = field(default_factory=dict)
    means: list[float] = field(default_factory=list)
    variances: list[float] = field(default_factory=list)
    rows: dict[tuple[Plan, str], TermRow] = field(default_factory=dict)

    def row(self, plan: Plan, study: str = "") -> TermRow:
        """Give the terms of a plan as columns and sizes."""
        if (plan, study) not in self.rows:
            terms = terms_of(plan)
            sizes = {f"level {study}": 1.0, **terms.sizes}
            columns = np.array([self._column(name) for name in sizes], dtype=np.intp)
            fixed = np.array([self._column(name) for name in terms.fixed], dtype=np.intp)
            values, parts = (np.array(list(one.values())) for one in (sizes, terms.fixed))
            known = terms.bubble - math.log(self.worth(plan.node_batch))
            self.rows[plan, study] = TermRow(plan, columns, values, fixed, parts, terms.load, known)
        return self.rows[plan, study]

    def _column(self, name: str) -> int:
        if name not in self.index:
            belief = self.belief(name)
            self.index[name] = len(self.index)
            self.means.append(belief.mean)
            self.variances.append(belief.deviation**2)
        return self.index[name]


@dataclass(frozen=True, slots=True)
class TermRow:
    """Terms of one plan, as columns of the regression."""

    plan: Plan
    columns: NDArray[np.intp]
    sizes: Array
    fixed: NDArray[np.intp]
    fixed_sizes: Array
    load: float
    """As of `PlanTerms`."""

    known: float
    """What is known without a trial, added to the sum."""


class Effects:
    """Learned effects.

    Args:
        columns: Terms that have come up so far, and what was believed of them.
        observed: What trials showed.
    """

    def __init__(self, columns: TermColumns, observed: Sequence[ObservedTime]) -> None:
        self._columns = columns
        self._rows = [columns.row(one.plan, one.study) for one in observed]
        self._log_s = np.array([one.log_s for one in observed])
        self._spread = np.array([1 / one.weight for one in observed])
        self._estimate = np.array(columns.means)
        self.noise, self._own = _USUAL_NOISE, _OWN_DEVIATIONS[1]
        if observed:
            self._learn()

    def predict(self, plans: Sequence[Plan]) -> tuple[Array, Array]:
        """Give the mean and the standard deviation of the log time per sample of plans."""
        rows = [self._columns.row(plan) for plan in plans]
        matrix, mean, shared = self._expect(rows)
        variance = (matrix**2) @ np.array(self._columns.variances) + self._own**2
        if self._rows:
            variance = variance - ((shared @ self._inverse) * shared).sum(axis=1)
        return mean, np.sqrt(np.maximum(variance, _LEAST_VARIANCE))

    def covariance(self, plans: Sequence[Plan]) -> tuple[Array, Array]:
        """Give the means of the log times per sample of plans, and how they vary together."""
        rows = [self._columns.row(plan) for plan in plans]
        matrix, mean, shared = self._expect(rows)
        together = (matrix * self._columns.variances) @ matrix.T
        together += self._own**2 * np.eye(len(rows))
        if self._rows:
            together = together - shared @ self._inverse @ shared.T
        return mean, together

    def _expect(self, rows: Sequence[TermRow]) -> tuple[Array, Array, Array]:
        """Give the terms and the means of plans, and what they have in common with the trials."""
        matrix, offset = self._matrix(rows)
        mean = offset + matrix @ np.array(self._columns.means)
        if not self._rows:
            return matrix, mean, np.zeros((len(rows), 0))
        shared = self._shared(matrix, self._same(rows))
        return matrix, mean + shared @ self._solved, shared

    def _learn(self) -> None:
        same, means = self._same(self._rows), np.array(self._columns.means)
        for _ in range(_ROUNDS):
            matrix, offset = self._matrix(self._rows)
            rest = self._log_s - offset - matrix @ means
            self._scaled = matrix * self._columns.variances
            explained = self._scaled @ matrix.T
            self.noise, self._own = self._likeliest(explained, same, rest)
            noise = np.diag(self.noise**2 * self._spread)
            self._inverse = np.linalg.inv(explained + self._own**2 * same + noise)
            self._solved = self._inverse @ rest
            moved = means + self._scaled.T @ self._solved - self._estimate
            self._estimate = self._estimate + np.clip(moved, -_LARGEST_STEP, _LARGEST_STEP)
        # The last round's estimate is for the next; predictions use the one that it was made with.
        self._estimate = self._estimate - np.clip(moved, -_LARGEST_STEP, _LARGEST_STEP)

    def _likeliest(self, explained: Array, same: Array, rest: Array) -> tuple[float, float]:
        """Find the noise and the deviation of plans that make the trials likeliest.

        Divided by the root of its spread, each trial has the same noise, which adds the same to
        every eigenvalue of the covariance: one decomposition serves all noises.
        """
        root = np.sqrt(self._spread)
        found: list[tuple[float, float, float]] = []
        for own in _OWN_DEVIATIONS:
            covariance = (explained + own**2 * same) / np.outer(root, root)
            values, vectors = np.linalg.eigh(covariance)
            seen = (vectors.T @ (rest / root)) ** 2
            for noise in _NOISES:
                total = np.maximum(values, 0.0) + noise**2
                doubt = (math.log(noise / _USUAL_NOISE) / _DOUBT) ** 2
                surprise = float((seen / total).sum() + np.log(total).sum()) + doubt
                found.append((surprise, noise, own))
        return min(found)[1:]

    def _shared(self, matrix: Array, same: Array) -> Array:
        """Give the covariance of plans and trials, before the trials."""
        width = self._scaled.shape[1]  # terms that came up later have nothing in common with these
        return np.asarray(matrix[:, :width] @ self._scaled.T + self._own**2 * same)

    def _same(self, rows: Sequence[TermRow]) -> Array:
        """Say which of these plans is the plan of which trial."""
        numbers: dict[Plan, int] = {}
        known = [numbers.setdefault(row.plan, len(numbers)) for row in self._rows]
        asked = [numbers.get(row.plan, -1) for row in rows]
        return np.asarray(np.equal.outer(asked, known), dtype=np.float64)

    def _matrix(self, rows: Sequence[TermRow]) -> tuple[Array, Array]:
        """Give the sizes of all terms in each row, and what is added to their sum."""
        width = len(self._columns.index)
        matrix, offset = np.zeros((len(rows), width)), np.zeros(len(rows))
        if not rows:
            return matrix, offset
        numbers = np.repeat(np.arange(len(rows)), [len(row.columns) for row in rows])
        columns = np.concatenate([row.columns for row in rows])
        matrix[numbers, columns] = np.concatenate([row.sizes for row in rows])
        fixed = np.array([row.fixed for row in rows])
        parts = np.array([row.fixed_sizes for row in rows])
        logs_fixed = (self._believed_estimate(width)[fixed] * parts).sum(axis=1).tolist()
        slopes = np.zeros(len(rows))
        for i, (row, log_fixed) in enumerate(zip(rows, logs_fixed, strict=True)):
            waiting = math.exp(log_fixed) * row.load
            slope = waiting / (1 + waiting)
            slopes[i] = slope
            offset[i] = row.known + math.log1p(waiting) - slope * log_fixed
        matrix[np.arange(len(rows))[:, None], fixed] = slopes[:, None] * parts
        return matrix, offset

    def _believed_estimate(self, width: int) -> Array:
        later = self._columns.means[len(self._estimate) : width]
        return np.concatenate([self._estimate, later]) if later else self._estimate
