"""An ONNX file computes what the model does, for any number of samples, or is not written."""

from __future__ import annotations

from inspect import signature

import onnxruntime
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from launch.errors import ExportError, ExportTargetError, UseCaseError
from launch.onnx_export import exporting
from launch.onnx_export.exporting import check_call, check_target, export_model
from launch.onnx_export.model_call import (
    ModelCall,
    dynamic_dimensions,
    leave_out_labels,
    record_call,
)
from launch.packages.install_command import install_command
from launch.use_cases._base import UseCase


class Pictures(torch.utils.data.Dataset):
    def __len__(self):
        return 5

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        return torch.randn(3, 8, 8, generator=generator), index % 3


class Convolutions(UseCase):
    name = "convolutions"

    def model(self):
        return nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(), nn.Flatten(), nn.Linear(144, 3)
        )

    def dataset(self, data, *, train):
        return Pictures()

    def loss(self, output, target):
        return functional.cross_entropy(output, target)


class Texts(torch.utils.data.Dataset):
    """Of different lengths, the first one not the longest."""

    def __len__(self):
        return 6

    def __getitem__(self, index):
        return torch.arange(1, 4 + (3 * index) % 5)


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(16, 8)
        self.output = nn.Linear(8, 16)

    def forward(self, ids, *, mask, scale=1.0):
        seen = self.embedding(ids) * mask[..., None]
        return {"logits": self.output(seen) * scale, "mean": seen.mean(1)}


class PaddedTexts(UseCase):
    """A step of its own, on a batch that is no pair, with keywords and a number among them."""

    name = "padded-texts"

    def model(self):
        return Reader()

    def dataset(self, data, *, train):
        return Texts()

    def collate(self, samples):
        return {"ids": pad_sequence(samples, batch_first=True)}

    def step(self, model, batch):
        ids = batch["ids"]
        output = model(ids[:, :-1], mask=(ids[:, :-1] != 0).float(), scale=0.5)
        return functional.cross_entropy(output["logits"].flatten(0, 1), ids[:, 1:].flatten())


class Branching(Convolutions):
    """Decides by its numbers, which a graph cannot hold."""

    def model(self):
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(192, 3)

            def forward(self, pictures):
                output = self.layer(pictures.flatten(1))
                return output if output.sum() > 0 else -output

        return Model()


class MethodOnly(PaddedTexts):
    def step(self, model, batch):
        return model.output(model.embedding(batch["ids"])).mean()


def export(case, path, model=None):
    torch.manual_seed(0)
    return export_model(case, model or case.model(), case.dataset(None, train=True), path)


def run(path, *arrays):
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [given.name for given in session.get_inputs()]
    return session.run(None, dict(zip(names, arrays, strict=True)))


def test_file_gives_what_the_model_gives_for_any_number_of_samples(tmp_path):
    path = tmp_path / "model.onnx"
    model = Convolutions().model()
    saved = export(Convolutions(), path, model)
    assert saved.largest_difference < 1e-4
    assert saved.num_bytes == path.stat().st_size
    assert path.stat().st_mode & 0o777 == 0o600
    assert [file.name for file in tmp_path.iterdir()] == ["model.onnx"]
    for size in (1, 7):
        pictures = torch.randn(size, 3, 8, 8)
        (found,) = run(path, pictures.numpy())
        assert torch.allclose(torch.from_numpy(found), model(pictures), atol=1e-4), size


def test_step_of_its_own_is_exported_on_what_it_gives_the_model(tmp_path):
    path = tmp_path / "reader.onnx"
    model = Reader()
    export(PaddedTexts(), path, model)
    ids = torch.randint(1, 16, (3, 4))  # another length too: the model allows any
    mask = torch.ones(3, 4)
    logits, mean = run(path, ids.numpy(), mask.numpy())
    expected = model(ids, mask=mask, scale=0.5)
    assert torch.allclose(torch.from_numpy(logits), expected["logits"], atol=1e-4)
    assert torch.allclose(torch.from_numpy(mean), expected["mean"], atol=1e-4)


class Answering(nn.Module):
    """Computes its loss too where it is given labels, as models of `transformers` do."""

    needs_labels = False

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, inputs=None, mask=None, labels=None, scale=1.0):
        answer = self.layer(inputs) * scale
        if labels is None and not self.needs_labels:
            return answer
        return functional.cross_entropy(answer, labels), answer


@pytest.mark.parametrize("needs_labels", [False, True])
def test_labels_are_left_out_of_a_call_where_the_model_answers_without(needs_labels):
    model = Answering()
    model.needs_labels = needs_labels
    inputs, labels = torch.ones(2, 4), torch.tensor([0, 1])
    call = leave_out_labels(model, ModelCall((inputs, None, labels, 2.0), {}))
    bound = signature(model.forward).bind(*call.args, **call.kwargs).arguments
    assert ("labels" in bound) is needs_labels
    assert bound["scale"] == 2.0
    assert len(call.tensors) == 1 + needs_labels


def test_dimensions_that_count_samples_are_told_from_lengths():
    case, model = PaddedTexts(), Reader()
    samples = [case.dataset(None, train=True)[index] for index in range(4)]
    calls = [
        record_call(case, model, case.collate(chosen))
        for chosen in (samples, samples[:1] * 2, samples[:1] * 3)
    ]
    auto = torch.export.Dim.AUTO
    of_ids, of_mask, of_scale = dynamic_dimensions(*calls)
    assert of_ids == of_mask == {0: "batch", 1: auto}
    assert of_scale is None


def test_earlier_file_stays_where_the_model_cannot_be_exported(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_text("earlier")
    with pytest.raises(ExportError, match=r"cannot export forward\(\) of \w+: .*") as caught:
        export(Branching(), path)
    assert ": change that part of it, or use the" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300
    assert path.read_text() == "earlier"
    assert [file.name for file in tmp_path.iterdir()] == ["model.onnx"]


class Cache:
    """What decoders keep of a text for its next words: no tensor, nor a list of some."""


class Remembering(nn.Linear):
    def forward(self, inputs):
        return {"output": super().forward(inputs), "kept": Cache()}


class Remembered(Convolutions):
    def model(self):
        return nn.Sequential(nn.Flatten(), Remembering(192, 3))

    def loss(self, output, target):
        return super().loss(output["output"], target)


def test_output_that_is_no_tensor_is_named_with_what_to_do(tmp_path):
    """The story: a model of T5 ended with PyTorch's text about pytrees, cut in a word."""
    with pytest.raises(ExportError) as caught:
        export(Remembered(), tmp_path / "model.onnx", Remembered().model())
    assert str(caught.value) == (
        "the output of Sequential holds Cache, and an ONNX file holds tensors alone: let "
        "forward() return tensors, in lists or dictionaries where there are several"
    )


def test_step_that_calls_methods_of_the_model_alone_is_refused(tmp_path):
    with pytest.raises(ExportError, match=r"does not call the model itself, .*: call model"):
        export(MethodOnly(), tmp_path / "model.onnx")
    with pytest.raises(UseCaseError, match="--onnx: the step does not call the model itself"):
        check_call(MethodOnly(), Reader(), Texts())


def test_file_that_computes_something_else_is_not_kept(tmp_path, monkeypatch):
    original = exporting.largest_difference

    def compare_changed(path, model, calls):
        with torch.no_grad():
            model[-1].bias.add_(0.01)
        return original(path, model, calls)

    monkeypatch.setattr(exporting, "largest_difference", compare_changed)
    said = "differs from PyTorch's by .*, divided by the largest element where that is above 1"
    with pytest.raises(ExportError, match=said):
        export(Convolutions(), tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


def test_missing_libraries_and_folders_are_one_line(tmp_path, monkeypatch):
    with pytest.raises(ExportTargetError, match="it is a folder: name a file"):
        check_target(tmp_path)
    with pytest.raises(ExportTargetError, match=r"onnx: there is no folder /.*/nowhere: name a"):
        check_target(tmp_path / "nowhere" / "model.onnx")
    with pytest.raises(ExportTargetError, match="onnx: file name too long: name a file in another"):
        check_target(tmp_path / ("x" * 300) / "model.onnx")
    monkeypatch.setattr(exporting, "find_spec", lambda name: None)
    with pytest.raises(ExportTargetError) as caught:
        check_target(tmp_path / "model.onnx")
    assert str(caught.value) == (
        f"no onnx, onnxscript, onnxruntime installed: {install_command('ddlplan[onnx]')}"
    )
