"""Judgement whether bf16 is good enough here, from what a check measured."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

_UNIT_ROUNDOFF = 2.0**-8
"""Of bf16, which keeps 8 bits of a number: the largest relative error of one rounding."""

MAX_OPERATOR_ERROR = 4 * _UNIT_ROUNDOFF
"""Largest difference that a sound kernel leaves, relative in the Euclidean norm.

Products of bf16 numbers are exact in fp32, and their sums in fp32 err by about 2^-24 times the
root of their number (Higham and Mary, "A new approach to probabilistic rounding error analysis",
2019), which is nothing here. What is left is the rounding of the result, at most u. A kernel that
parts its sums may round each of s partial sums too, which errs by about the root of s times u: 4 u
allows 16 of them. Kernels that were wrong (pytorch #163347, #169688) erred by 75 % and more.
"""

_MAX_GRADIENT_ERROR = 1.0
"""Largest relative error of a parameter's gradient, in the Euclidean norm, for which a step along
it is sure to go downhill: from ``|g' - g| < |g|`` follows ``<g', g> > 0``.

A tighter bound would be wrong: rounding alone moves the gradient of the first of VGG16's 16 layers
by 40 %, because it flips ReLUs and maxima of pooling. Each kernel is checked by itself, with
`MAX_OPERATOR_ERROR`.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorFigures:
    """Error and times of one operator of one layer."""

    layer: str
    kind: str
    error: float
    """Relative difference in the Euclidean norm; infinite where a result is not finite."""
    exact_s: float
    lower_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFigures:
    """Comparison of a step in lower precision with one in fp32, in one memory format."""

    memory_format: str
    loss: float
    exact_loss: float
    gradient_errors: Mapping[str, float]
    """Relative error of each gradient that is not negligible."""
    operators: Sequence[OperatorFigures]

    @property
    def exact_s(self) -> float:
        """Time of all operators in fp32."""
        return sum(operator.exact_s for operator in self.operators)

    @property
    def lower_s(self) -> float:
        """Time of all operators in the lower precision."""
        return sum(operator.lower_s for operator in self.operators)

    def find_fault(self) -> str | None:
        """Return what is wrong with the numbers, ``None`` where nothing is."""
        fault = self._find_wrong_operator() or self._find_wrong_step()
        return fault and f"{fault}, {self.memory_format}"

    def _find_wrong_operator(self) -> str | None:
        worst = max(self.operators, key=lambda operator: operator.error, default=None)
        if worst is None or worst.error <= MAX_OPERATOR_ERROR:
            return None
        return (
            f"{worst.kind} of {worst.layer} differs by {_percent(worst.error)} from fp32 with the "
            f"same inputs, where rounding explains {_percent(MAX_OPERATOR_ERROR)}"
        )

    def _find_wrong_step(self) -> str | None:
        if not math.isfinite(self.loss):
            return f"loss is {self.loss:.4g} instead of {self.exact_loss:.4g}"
        for name, error in self.gradient_errors.items():
            if not error < _MAX_GRADIENT_ERROR:
                return f"gradient of {name} differs by {_percent(error)} from fp32"
        return None


def find_obstacle(figures: Iterable[StepFigures]) -> str | None:
    """Return why a precision is no good for this use case here, ``None`` where it is good.

    Its numbers must be right in each memory format; its operators, in the format that is best for
    them, must be faster than those of fp32 in theirs.
    """
    sound = []
    for found in figures:
        if fault := found.find_fault():
            return fault
        sound.append(found)
    return _find_slowness(sound)


def _find_slowness(figures: Sequence[StepFigures]) -> str | None:
    exact_s = min(found.exact_s for found in figures)
    if exact_s == 0.0:
        return "there is no convolution and no matrix product in fp32 that could be faster"
    fastest = min(figures, key=lambda found: found.lower_s)
    factor = fastest.lower_s / exact_s
    if factor < 1.0:
        return None
    said = f"convolutions and matrix products take {factor:.2f} times as long as in fp32"
    slowest = max(fastest.operators, key=lambda operator: operator.lower_s - operator.exact_s)
    times = slowest.lower_s / slowest.exact_s
    return f"{said}, {slowest.kind} of {slowest.layer} {times:.1f} times" if times > 1 else said


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share < 1 else f"{100 * share:.0f} %"
