"""Every built-in use case can be exported: its ONNX file computes what PyTorch does, to 1e-4."""

from __future__ import annotations

import onnxruntime
import pytest
import torch
from built_in_cases import Cnn, Resnet18, Resnet44, SmallTransformer, make_pictures

from launch.onnx_export.exporting import export_model
from launch.use_cases import resolve, use_case_names

SMALL = {case.name: case for case in (Cnn, Resnet18, Resnet44, SmallTransformer)}
"""Use cases that need no pictures, with a handful of samples."""

QUICK = {"mnist_cnn", "transformer"}
"""Exported in a second or two."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in QUICK else pytest.mark.long)
        for name in use_case_names()
    ],
)
def test_file_computes_what_the_model_does(name, tmp_path):
    """Exported on two samples, as a set of one is: VGG16 computes each of them many times."""
    pictures = None if name in SMALL else make_pictures()
    case = resolve(name).load(pictures) if pictures else SMALL[name]()
    data = case.dataset(pictures, train=False)
    torch.manual_seed(0)
    model = case.model()
    samples = [data[index] for index in range(3)]
    case.step(model, case.collate(samples[:2]))  # in training, so that BatchNorm has seen something
    saved = export_model(case, model, samples[:2], tmp_path / "model.onnx")
    assert saved.largest_difference <= 1e-4

    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    inputs, _ = case.collate(samples)
    (found,) = session.run(None, {session.get_inputs()[0].name: inputs.numpy()})
    with torch.no_grad():
        expected = model(inputs)
    largest = max(1.0, float(expected.abs().max()))
    assert float((torch.from_numpy(found) - expected).abs().max()) <= 1e-4 * largest
