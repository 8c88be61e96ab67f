"""Check of this machine's kernels: as right in bf16 as in fp32, and faster.

Each convolution and matrix product of a step in fp32, forward and backward, is run a second time
on inputs rounded to bf16, once by the fp32 kernel and once in the lower precision. The two get
the same numbers, so nothing that follows from rounding elsewhere, such as a ReLU that flips, is in
their difference.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from launch.training.autocast import internal_bf16
from launch.training.precision.figures import OperatorFigures

_aten = torch.ops.aten
_KINDS = {
    _aten.convolution.default: "convolution",
    _aten.convolution_backward.default: "backward convolution",
    _aten.mm.default: "matrix product",
    _aten.addmm.default: "matrix product",
    _aten.bmm.default: "matrix product",
    _aten.baddbmm.default: "matrix product",
}


class OperatorCheck(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Runs the operators of its ``with`` block as they are, and each once more in bf16.

    Args:
        model: Names the layers.
        precision: ``bf16`` or ``bf16_internal``.
    """

    def __init__(self, model: nn.Module, precision: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.figures: list[OperatorFigures] = []
        self._is_internal = precision == "bf16_internal"
        self._seen: dict[str, tuple[float, float, float]] = {}
        self._alive: list[Tensor] = []  # so that no address is used for another tensor
        self._layers = {
            parameter.data_ptr(): name.rpartition(".")[0] or "the model"
            for name, parameter in model.named_parameters()
        }

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operator; where it is one to check, run its bf16 form too."""
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if func in _KINDS and all(t.dtype == torch.float32 for t in _tensors((args, result))):
            self._check(func, args, kwargs, result)
        return result

    def _check(self, func: Any, args: Any, kwargs: dict[str, Any], result: Any) -> None:
        layer = self._name(args)
        # Layers of one shape run one kernel: the first of them is checked.
        shape = repr((func, tree_map(_shape, args)))
        if shape not in self._seen:
            self._seen[shape] = self._compare(func, args, kwargs, result)
        error, exact_s, lower_s = self._seen[shape]
        figures = OperatorFigures(
            layer=layer, kind=_KINDS[func], error=error, exact_s=exact_s, lower_s=lower_s
        )
        self.figures.append(figures)

    def _compare(
        self, func: Any, args: Any, kwargs: dict[str, Any], result: Any
    ) -> tuple[float, float, float]:
        """Return the difference, the time in fp32 and the time in the lower precision."""
        rounded = tree_map(_round, args)
        expected, exact_s = _timed(lambda: func(*rounded, **kwargs))
        if self._is_internal:
            with internal_bf16():
                found, lower_s = _timed_warm(lambda: func(*args, **kwargs), exact_s)
        else:
            halves = tree_map(_halve, args)
            found, lower_s = _timed_warm(lambda: func(*halves, **kwargs), exact_s)
        error = _difference(found, expected)
        if self._is_internal:  # which may round, and need not
            error = min(error, _difference(found, result))
        return error, exact_s, lower_s

    def _name(self, args: Any) -> str:
        """Find the layer by its weights; in the backward pass by its input, if need be."""
        tensors = _tensors(args)
        known = [self._layers[t.data_ptr()] for t in tensors if t.data_ptr() in self._layers]
        if not known:
            return " x ".join("x".join(map(str, t.shape)) for t in tensors)
        for tensor in tensors:
            self._layers.setdefault(tensor.data_ptr(), known[-1])
        self._alive += tensors
        return known[-1]


def _tensors(values: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor)]


def _halve(value: Any) -> Any:
    return value.to(torch.bfloat16) if isinstance(value, Tensor) else value


def _shape(value: Any) -> Any:
    return (value.shape, value.stride()) if isinstance(value, Tensor) else value


def _round(value: Any) -> Any:
    return value.to(torch.bfloat16).to(torch.float32) if isinstance(value, Tensor) else value


def _difference(found: Any, expected: Any) -> float:
    """Return the largest relative difference over an operator's results."""
    pairs = zip(_tensors(found), _tensors(expected), strict=True)
    return max((relative_error(one.float(), other) for one, other in pairs), default=0.0)


def relative_error(found: Tensor, expected: Tensor) -> float:
    """Return ``|found - expected| / |expected|`` in the Euclidean norm, infinite for NaN."""
    distance = torch.linalg.vector_norm(found - expected).item()
    size = torch.linalg.vector_norm(expected).item()
    if distance == 0.0:
        return 0.0
    error = distance / size if size > 0.0 else float("inf")
    return error if error == error else float("inf")


def _timed(run: Callable[[], Any]) -> tuple[Any, float]:
    _finish()
    started = time.perf_counter()
    result = run()
    _finish()
    return result, time.perf_counter() - started


def _timed_warm(run: Callable[[], Any], exact_s: float) -> tuple[Any, float]:
    """Time a run, and where it is no faster a second one: the first one makes the kernel."""
    result, first_s = _timed(run)
    return (result, first_s) if first_s < exact_s else _timed(run)


def _finish() -> None:
    """Wait until the GPU has computed everything."""
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
