"""Comparison of an ONNX file with the model that it was made from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from launch.errors import ExportError
from launch.onnx_export.model_call import ModelCall

TOLERANCE = 1e-4
"""Of an element, in units of the largest one of its output where that is above 1."""


def largest_difference(path: Path, model: nn.Module, calls: list[ModelCall]) -> float:
    """Compare the outputs of a file in onnxruntime with the model's; give the largest difference.

    Args:
        path: The file.
        model: In evaluation mode, on the CPU.
        calls: What both are given, one after the other.

    Raises:
        ExportError: The file cannot be run, or an output differs by more than the tolerance.
    """
    import onnxruntime  # an optional library, which the writer has checked for

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # its warnings are about its own optimizer
    try:
        session = onnxruntime.InferenceSession(
            str(path), options, providers=["CPUExecutionProvider"]
        )
        return max(_difference(session, model, call) for call in calls)
    except ExportError:
        raise
    except Exception as error:  # it has an exception class for each of its states
        reason = " ".join(str(error).split())[:300]
        raise ExportError(f"onnxruntime cannot run the file: {reason}") from error


def _difference(session: Any, model: nn.Module, call: ModelCall) -> float:
    names, tensors = [given.name for given in session.get_inputs()], call.tensors
    if len(names) != len(tensors):
        raise ExportError(f"the file has {len(names)} inputs and the model {len(tensors)} tensors")
    arrays = (tensor.detach().contiguous().numpy() for tensor in tensors)
    found = session.run(None, dict(zip(names, arrays, strict=True)))
    with torch.no_grad():
        output = model(*call.args, **call.kwargs)
    expected = [leaf for leaf in pytree.tree_leaves(output) if isinstance(leaf, Tensor)]
    if len(found) != len(expected):
        raise ExportError(f"the file has {len(found)} outputs and the model {len(expected)}")
    worst = 0.0
    for array, tensor in zip(found, expected, strict=True):
        got, wanted = torch.from_numpy(array).double(), tensor.double()
        if got.shape != wanted.shape:
            raise ExportError(
                f"an output of the file is {list(got.shape)} and the model's {list(wanted.shape)}"
            )
        if not wanted.numel():
            continue
        scale = max(1.0, float(wanted.abs().max()))
        difference = float((got - wanted).abs().max()) / scale
        if not difference <= TOLERANCE:  # NaN too
            raise ExportError(
                f"an output of the file differs from PyTorch's by {difference:.1e}, divided by "
                f"the largest element where that is above 1: at most {TOLERANCE:g} is allowed"
            )
        worst = max(worst, difference)
    return worst
