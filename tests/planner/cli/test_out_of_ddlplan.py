"""`launch --onnx`, `launch --tensorboard` and `weights export`, as people run them."""

from __future__ import annotations

import re

import onnxruntime
import pytest
import torch
from safetensors.torch import load_file
from tensorboard.backend.event_processing import event_accumulator as reading


def outputs(path, inputs):
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (given,) = session.get_inputs()
    return torch.from_numpy(session.run(None, {given.name: inputs.numpy()})[0])


@pytest.mark.long
def test_launch_leaves_an_onnx_file_and_event_files_and_a_run_is_exported_later(tuned, steady):
    ended = tuned.launch(steady, "--epochs", 2, "--onnx", "model.onnx", "--tensorboard", "events")
    assert ended.code == 0, ended.err
    (line,) = [line for line in ended.out.splitlines() if line.startswith("onnx ")]
    assert line.startswith("onnx       model.onnx (")
    assert line.endswith(" of PyTorch's, divided by the largest element where that is above 1)")
    weights = load_file(tuned.folder / "runs/1/weights.safetensors")
    inputs = torch.randn(5, 2)
    hidden = torch.relu(inputs @ weights["0.weight"].T + weights["0.bias"])
    expected = hidden @ weights["2.weight"].T + weights["2.bias"]
    assert torch.allclose(outputs(tuned.folder / "model.onnx", inputs), expected, atol=1e-4)

    events = reading.EventAccumulator(str(tuned.folder / "events/run-1")).Reload()
    assert [event.step for event in events.Scalars("loss/validation")] == [1, 2]

    saved = tuned.data("weights", "export", "1", "--onnx", "later.onnx")
    assert saved["path"] == str(tuned.folder / "later.onnx")
    assert saved["largest_difference"] < 1e-4
    assert torch.allclose(outputs(tuned.folder / "later.onnx", inputs), expected, atol=1e-4)


def test_run_that_is_not_there_or_has_no_best_weights_is_one_line(tuned):
    assert (
        tuned.run("weights", "export", "3", "--onnx", "model.onnx")
        .refusal()
        .endswith(
            "/runs/3/job.json: no such file or directory: name the folder of a run, as runs/3"
        )
    )


@pytest.mark.long
def test_library_that_is_missing_is_said_before_anything_is_trained(tuned, steady):
    (tuned.folder / "hidden").mkdir()
    hide = "import sys; sys.modules['onnxruntime'] = None"
    (tuned.folder / "hidden" / "sitecustomize.py").write_text(hide)
    hidden = str(tuned.folder / "hidden")
    started = tuned.start_launch(steady, "--onnx", "there", PYTHONPATH=hidden)
    said = r"installed: .*pip install .*'ddlplan\[onnx\]'"
    assert re.search(said, tuned.end(started).refusal())
    assert not (tuned.folder / "runs").exists()


def test_event_files_that_cannot_be_written_are_told_before_anything_is_trained(tuned, steady):
    """As is a library that is missing, by the same check."""
    error = tuned.launch(steady, "--tensorboard", "planner.db").refusal()
    assert "planner.db: file exists: name another folder" in error
    assert not (tuned.folder / "runs").exists()
