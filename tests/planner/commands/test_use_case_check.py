"""`ddlplan use-cases check` tries one batch and says what it found."""

from __future__ import annotations

import pytest

CASE = """
import torch


# TODO: its size
class Small:
    name = "small"

    def model(self):
        model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16),
                                    torch.nn.Linear(16, 4))
        model.register_buffer("scratch", torch.zeros(3), persistent=False)
        return model

    def dataset(self, data, *, train):
        count = 40 if train else 10
        inputs = torch.randn(count, 8, generator=torch.Generator().manual_seed(0))
        return torch.utils.data.TensorDataset(inputs, torch.arange(count) % 4)

    def loss(self, output, target):
        return torch.nn.functional.cross_entropy(output, target)

    def step(self, model, batch):
        return self.loss(model(batch[0]), batch[1])

    def optimizer(self, parameters):
        return torch.optim.SGD(parameters, lr=0.1)
"""


def test_what_was_found_is_in_the_document_and_warnings_beside_it(ddlplan):
    (ddlplan.folder / "case.py").write_text(CASE)
    data = ddlplan.data("use-cases", "check", "case.py:Small")
    assert data["parameter_count"] == (8 * 16 + 16) + 2 * 16 + (16 * 4 + 4)
    assert (data["train_samples"], data["validation_samples"]) == (40, 10)
    assert data["own_methods"] == ["model", "dataset", "optimizer", "loss", "step"]
    assert "collate" in data["default_methods"]
    assert data["has_batch_norm"] is True
    assert data["has_weight"] is False
    assert data["not_saved"] == ["scratch"]
    assert data["kept_bytes_per_sample"] > 4 * (8 + 16)
    obstacles = {one["name"]: one["obstacle"] for one in data["strategies"]}
    assert obstacles["sequential"] is None
    assert "step() of its own" in obstacles["pipeline"]
    number = CASE[: CASE.index("# TODO")].count("\n") + 1
    assert data["todo"] == [{"line": number, "text": "its size"}]
    assert ddlplan.listing() == ["case.py"]


MODEL = """
import torch
import transformers


def make():
    # TODO: its size
    size = {"vocab_size": 17, "n_positions": 8, "n_embd": 8, "n_layer": 1, "n_head": 2}
    size |= {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    tokens = torch.arange(16 * 6).view(16, 6) % 17
    return {
        "model": transformers.GPT2LMHeadModel(transformers.GPT2Config(**size)),
        "train_dataset": [{"input_ids": row, "labels": row} for row in tokens],
    }
"""


@pytest.mark.long
def test_what_is_left_to_do_is_found_in_the_file_behind_the_name_of_an_adapter(ddlplan):
    """The story: a file called ``hf:/.../model.py`` was looked for, and a traceback shown."""
    (ddlplan.folder / "model.py").write_text(MODEL)
    number = MODEL[: MODEL.index("# TODO")].count("\n") + 1
    ended = ddlplan.run("use-cases", "check", "hf:model.py:make")
    assert ended.code == 0, ended.err
    assert f"model.py:{number}: its size" in ended.out
