"""What cannot be saved is found before the first step, and what can is read as it was."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from launch.checkpoints.tensor_file import write_tensors
from launch.checkpoints.weights import check_weights, load_weights, save_weights
from launch.errors import CheckpointError
from launch.workers.task import Purpose, Task
from launch.workers.worker import _export
from launch.workload import Workload
from tests.launch.small_files import files_of_at_most


class Counting(nn.Linear):
    """Keeps state that is no tensor."""

    def __init__(self, state: object = None) -> None:
        super().__init__(2, 3)
        self.state = state

    def get_extra_state(self) -> object:
        return self.state

    def set_extra_state(self, state: object) -> None:
        self.state = state


def test_weights_without_other_state_are_read_by_the_library(tmp_path):
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)).bfloat16()
    path = tmp_path / "weights.safetensors"
    check_weights(model, path)
    assert list(tmp_path.iterdir()) == []
    assert save_weights(model, path) == path.stat().st_size
    for found in (load_file(path), load_weights(path)):
        assert found.keys() == model.state_dict().keys()
        assert all(torch.equal(found[name], value) for name, value in model.state_dict().items())


def test_one_tensor_is_written_before_the_next_is_copied(tmp_path):
    """The story: all tensors of a GPU were copied first, a whole model more in memory."""
    path, written = tmp_path / "weights.safetensors", []

    class Asked(dict):
        def values(self):
            for value in super().values():
                written.append(path.stat().st_size)
                yield value

    write_tensors(path, Asked({name: torch.zeros(1 << 18) for name in "ab"}))
    assert written[0] < 1 << 19 < written[1] < 1 << 21


def test_views_that_are_computed_when_they_are_read_are_saved_by_their_values(tmp_path):
    """The story: they have no bytes of their own, and a training ended with PyTorch's error."""
    conjugate = torch.tensor([1 + 2j]).conj()
    model = nn.Module()
    model.register_buffer("conjugate", conjugate)
    model.register_buffer("negative", conjugate.imag)
    path = tmp_path / "weights.safetensors"
    save_weights(model, path)
    found = load_weights(path)
    assert found["conjugate"].tolist() == [1 - 2j]
    assert found["negative"].tolist() == [-2.0]


@pytest.mark.parametrize("document", ["[1]", "{", '{"parts": 3}', '{"state": [1]}'])
def test_weights_that_nobody_has_saved_are_not_exported(document, tmp_path):
    path = tmp_path / "weights.safetensors"
    save_file({"weight": torch.zeros(1)}, path, {"ddlplan": document})
    task = Task(
        purpose=Purpose.EXPORT,
        workload=Workload(use_case="x"),
        weights=str(path),
        onnx=str(tmp_path / "model.onnx"),
    )
    with pytest.raises(CheckpointError, match="does not fit the model of the use case"):
        _export(task, SimpleNamespace(model=Counting))


def test_extra_state_comes_back_as_it_was(tmp_path):
    """The story: it had no detach(), which was found out after the last epoch."""
    model = nn.Sequential(Counting({"seen": 3, (1, 2): [0.5, None]}), Counting(torch.arange(3)))
    inner = nn.Sequential(Counting({"mean": torch.ones(2), "name": "x"}), model)
    path = tmp_path / "weights.safetensors"
    check_weights(inner, path)
    save_weights(inner, path)
    other = nn.Sequential(Counting(), nn.Sequential(Counting(), Counting()))
    other.load_state_dict(load_weights(path))
    assert other[1][0].state == {"seen": 3, (1, 2): [0.5, None]}
    assert other[1][1].state.tolist() == [0, 1, 2]
    assert other[0].state["mean"].tolist() == [1, 1]
    assert torch.equal(other[0].weight, inner[0].weight)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Counting({"kept": {1, 2}}), "the model's state['_extra_state']['kept'] is a set, which"),
        (
            nn.ParameterDict({"w": nn.Parameter(torch.ones(2, 2).to_sparse())}),
            "w is a tensor of torch.float32, torch.sparse_coo, which safetensors cannot hold: keep",
        ),
        (
            nn.ParameterDict({"w": nn.Parameter(torch.ones(2, dtype=torch.complex128))}),
            "w is a tensor of torch.complex128, torch.strided, which safetensors cannot hold: keep",
        ),
    ],
)
def test_what_cannot_be_saved_is_refused_before_it_is_trained(model, message, tmp_path):
    with pytest.raises(CheckpointError) as refused:
        check_weights(model, tmp_path / "weights.safetensors")
    assert str(refused.value).startswith(message)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("write", [check_weights, save_weights])
def test_folder_that_cannot_be_written_is_named_before_the_training_and_after_it(write, tmp_path):
    """The story: after it, what was left of the file could not be removed either, and that ended a
    training that goes on without its best weights."""
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "weights.safetensors"
    with pytest.raises(CheckpointError, match=r"^the weights cannot be written: .*: not a dir"):
        write(nn.Linear(2, 2), path)


def test_disk_that_is_too_small_is_named_before_the_training(tmp_path):
    wide = nn.Linear(1 << 30, 1 << 20, device="meta")
    with pytest.raises(CheckpointError, match=rf"take \d+ bytes and {tmp_path} has \d+ left: make"):
        check_weights(wide, tmp_path / "weights.safetensors")
    assert list(tmp_path.iterdir()) == []


def test_disk_needs_room_for_the_best_weights_beside_the_last_ones(tmp_path):
    """The story: with --keep-best, room for one file was looked for, and two are kept."""
    path, free_bytes = tmp_path / "weights.safetensors", shutil.disk_usage(tmp_path).free
    wide = nn.Linear(1 << 10, free_bytes * 3 // 4 >> 12, device="meta")
    check_weights(wide, path)
    with pytest.raises(CheckpointError, match=r"^2 files of weights take \d+ bytes and "):
        check_weights(wide, path, files=2)


def test_disk_that_is_full_at_the_end_names_the_file_and_leaves_none(tmp_path):
    """The story: "No space left on device" was all that was said."""
    path = tmp_path / "weights.safetensors"
    with (
        files_of_at_most(1 << 16),
        pytest.raises(
            CheckpointError, match=rf"written: {tmp_path}/\.weights.safetensors: file too"
        ),
    ):
        save_weights(nn.Linear(256, 256), path)
    assert list(tmp_path.iterdir()) == []


def test_name_of_the_weights_is_on_the_disk(tmp_path, monkeypatch):
    """The story: the file was synced and its folder was not, so that its name could be lost."""
    synced, sync = [], os.fsync

    def record(file: int) -> None:
        synced.append(Path(f"/proc/self/fd/{file}").readlink().name)
        sync(file)

    monkeypatch.setattr(os, "fsync", record)
    save_weights(nn.Linear(2, 2), tmp_path / "weights.safetensors")
    assert synced == [".weights.safetensors", tmp_path.name]
