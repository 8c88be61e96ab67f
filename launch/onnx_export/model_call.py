"""Calls of a model: the arguments that a use case gives it, and which of their sizes may change."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from launch.data.batch import Batch
from launch.errors import ExportError
from launch.use_cases._base import UseCase

BATCH = "batch"
"""Name of the dimension that counts samples."""


@dataclass(frozen=True, slots=True)
class ModelCall:
    """Arguments with which a use case calls its model."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    @property
    def leaves(self) -> list[Any]:
        """What the arguments nest, tensors and others, in order."""
        found: list[Any] = pytree.tree_leaves((self.args, dict(self.kwargs)))
        return found

    @property
    def tensors(self) -> list[Tensor]:
        """The tensors among them: the inputs of an ONNX file."""
        return [leaf for leaf in self.leaves if isinstance(leaf, Tensor)]


def record_call(case: UseCase, model: nn.Module, batch: Batch) -> ModelCall:
    """Give the arguments of the model's first call in a step on a batch; the model does not run.

    Raises:
        ExportError: The step does not call the model.
    """
    calls: list[ModelCall] = []

    def record(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        # Keywords in their places, where they have any: an ONNX file has its inputs in order.
        bound = inspect.signature(model.forward).bind(*args, **kwargs)
        calls.append(ModelCall(bound.args, bound.kwargs))
        raise _RecordedError

    hook = model.register_forward_pre_hook(record, with_kwargs=True)
    try:
        with torch.no_grad():
            case.step(model, batch)
    except _RecordedError:
        pass
    finally:
        hook.remove()
    if not calls:
        raise ExportError(
            "the step does not call the model itself, which an ONNX file holds, but parts of it: "
            "call model(...) in step(model, batch), self(...) in training_step"
        )
    return calls[0]


class _RecordedError(BaseException):
    """Ends a step once its model was called; no ``except Exception`` of a user's holds it up."""


def leave_out_labels(model: nn.Module, call: ModelCall) -> ModelCall:
    """Leave out ``labels``, by which models of `transformers` compute their loss beside the rest.

    Args:
        model: In evaluation mode.
        call: Stays as it is where the model does not run without them: some encoder-decoders make
            their inputs of them.
    """
    bound = inspect.signature(model.forward).bind(*call.args, **call.kwargs)
    if bound.arguments.pop("labels", None) is None:
        return call
    without = ModelCall(bound.args, bound.kwargs)
    try:
        with torch.no_grad():
            model(*without.args, **without.kwargs)
    except Exception:  # noqa: BLE001 - the user's own code runs here and may raise anything
        return call
    return without


def dynamic_dimensions(
    call: ModelCall, twice: ModelCall, thrice: ModelCall
) -> list[dict[int, Any] | None]:
    """Find the dimensions of each argument that may change, as `torch.export` wants them.

    Args:
        call: The call that is exported.
        twice: One with the same sample two times.
        thrice: One with the same sample three times.

    Returns:
        For each leaf of the arguments, the name of each dimension that counts samples. One that
        differs for another reason, as the length of padded texts does, has ``Dim.AUTO``: it may
        change where the model allows it.

    Raises:
        ExportError: The calls are not alike.
    """
    rows = [each.leaves for each in (call, twice, thrice)]
    if len({len(row) for row in rows}) > 1:
        raise ExportError("the model is called with other arguments for another number of samples")
    return [_dimensions(*leaves) for leaves in zip(*rows, strict=True)]


def _dimensions(leaf: Any, twice: Any, thrice: Any) -> dict[int, Any] | None:
    if not isinstance(leaf, Tensor):
        return None
    if len({leaf.dim(), twice.dim(), thrice.dim()}) > 1:
        raise ExportError("the model is called with other shapes for another number of samples")
    found: dict[int, Any] = {}
    for number, sizes in enumerate(zip(leaf.shape, twice.shape, thrice.shape, strict=True)):
        if sizes[1:] == (2, 3):
            found[number] = BATCH
        elif len(set(sizes)) > 1:
            found[number] = torch.export.Dim.AUTO
    return found


def nest(model: nn.Module, call: ModelCall, values: Sequence[Any]) -> dict[str, Any]:
    """Nest values for the leaves of a call as its arguments are, by the parameters' names."""
    _, spec = pytree.tree_flatten((call.args, dict(call.kwargs)))
    args, kwargs = pytree.tree_unflatten(list(values), spec)
    return dict(inspect.signature(model.forward).bind(*args, **kwargs).arguments)
