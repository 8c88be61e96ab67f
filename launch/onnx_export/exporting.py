"""Export of a model: `torch.onnx` on a real batch, checked, and written whole or not at all."""

from __future__ import annotations

import os
import tempfile
import textwrap
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree
from torch.utils.data import Dataset

from launch.errors import ExportError, ExportTargetError, UseCaseError
from launch.onnx_export.comparison import largest_difference
from launch.onnx_export.model_call import (
    ModelCall,
    dynamic_dimensions,
    leave_out_labels,
    nest,
    record_call,
)
from launch.packages.install_command import install_command
from launch.reports import OnnxSaved
from launch.system.durable_files import explain_write_error, sync_folder
from launch.use_cases._base import UseCase

_LIBRARIES = ("onnx", "onnxscript", "onnxruntime")
_SAMPLES = 4
"""Of the batch on which the model is exported: sizes of 0 and 1 would be fixed ones."""

_EXPORTED = (torch.Tensor, bool, int, float, str, type(None))
"""What an output may hold: tensors, and constants, which are left out."""

_MOST_SAID = 200
"""Characters of PyTorch's own words."""


def check_target(path: Path) -> None:
    """Check before anything is trained that a model can be exported to a file.

    Raises:
        ExportTargetError: A library is missing, or the file cannot be written.
    """
    if missing := [name for name in _LIBRARIES if find_spec(name) is None]:
        raise ExportTargetError(
            f"no {', '.join(missing)} installed: {install_command('ddlplan[onnx]')}"
        )
    try:
        with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent):
            pass
    except OSError as error:
        raise ExportTargetError(
            f"--onnx {path}: {explain_write_error(error, path)}: name a file in another folder"
        ) from error
    if path.is_dir():
        raise ExportTargetError(f"--onnx {path}: it is a folder: name a file")


def check_call(case: UseCase, model: nn.Module, dataset: Dataset[Any]) -> None:
    """Check before anything is trained that a step calls the model, which is what is exported.

    Raises:
        UseCaseError: It does not.
    """
    try:
        record_call(case, model, case.collate(_take_samples(dataset)))
    except ExportError as error:
        raise UseCaseError(f"--onnx: {error}") from error


def export_model(case: UseCase, model: nn.Module, dataset: Dataset[Any], path: Path) -> OnnxSaved:
    """Write a model as an ONNX file, in place of what was there, once its outputs are PyTorch's.

    The number of samples in a batch stays open. A model of more than 2 GB has its weights in a
    second file, named as the first one with ``.data`` added.

    Args:
        case: Gives the batch, and calls the model on it.
        model: On the CPU, with its weights; it is left in evaluation mode.
        dataset: Samples.
        path: Of the file.

    Raises:
        ExportError: PyTorch cannot export the model, or the file's outputs are others.
        ExportTargetError: The file cannot be written.
    """
    model.eval()
    samples = _take_samples(dataset)

    def call_on(chosen: list[Any]) -> ModelCall:
        return leave_out_labels(model, record_call(case, model, case.collate(chosen)))

    call, more = call_on(samples), call_on([*samples, samples[0]])
    dimensions = dynamic_dimensions(call, call_on(samples[:1] * 2), call_on(samples[:1] * 3))
    program = _export(model, call, nest(model, call, dimensions))
    try:
        with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as name:
            hidden = Path(name)
            program.save(hidden / path.name)
            difference = largest_difference(hidden / path.name, model, [call, more])
            # The weights first: the name of the model is the last that appears.
            files = sorted(hidden.iterdir(), key=lambda file: file.name == path.name)
            num_bytes = sum(file.stat().st_size for file in files)
            for file in files:
                _move_durably(file, path.parent)
    except OSError as error:
        raise ExportTargetError(
            f"{path} cannot be written: {explain_write_error(error, path)}: make room there, or "
            "name a file in another folder"
        ) from error
    return OnnxSaved(path=str(path), num_bytes=num_bytes, largest_difference=difference)


def _take_samples(dataset: Dataset[Any]) -> list[Any]:
    """Take the samples of one batch; where there is only one, take it twice."""
    samples = [dataset[index] for index in range(min(_SAMPLES, len(dataset)))]  # type: ignore[arg-type]
    return samples * (1 if len(samples) > 1 else 2)


def _export(model: nn.Module, call: ModelCall, dynamic_shapes: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its own code
        try:
            _check_output(model, call)
            return torch.onnx.export(
                model,
                call.args,
                kwargs=dict(call.kwargs),
                dynamic_shapes=dynamic_shapes,
                dynamo=True,
                verbose=False,
            )
        except (ExportError, UseCaseError):
            raise
        except Exception as error:  # its own, dynamo's, and those of the user's forward()
            raise ExportError(
                f"PyTorch cannot export forward() of {type(model).__name__}: {_explain(error)}: "
                "change that part of it, or use the file of its weights"
            ) from error


def _check_output(model: nn.Module, call: ModelCall) -> None:
    """Check that the output is tensors, in whatever PyTorch can look into.

    Raises:
        ExportError: It holds something else.
    """
    with torch.no_grad():
        leaves = pytree.tree_leaves(model(*call.args, **call.kwargs))
    others = [leaf for leaf in leaves if not isinstance(leaf, _EXPORTED)]
    if others:
        raise ExportError(
            f"the output of {type(model).__name__} holds {type(others[0]).__name__}, and an ONNX "
            "file holds tensors alone: let forward() return tensors, in lists or dictionaries "
            "where there are several"
        )


def _explain(error: BaseException) -> str:
    """Give the first sentence of the original error: the message of PyTorch fills a page."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    sentence = lines[0].partition(". ")[0].rstrip(".:") if lines else "no message"
    return textwrap.shorten(f"{type(error).__name__}: {sentence}", _MOST_SAID, placeholder=" ...")


def _move_durably(file: Path, folder: Path) -> None:
    """Move a file into the folder above it, readable by the user alone, its content on the disk."""
    file.chmod(0o600)
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    file.replace(folder / file.name)
    sync_folder(folder)
