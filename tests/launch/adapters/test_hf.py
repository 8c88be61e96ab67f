"""A model of `transformers` as a use case: what its loss is a mean over, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path

import onnxruntime
import pytest
import torch

from launch.description.contract_use import find_own_methods
from launch.errors import UseCaseError
from launch.onnx_export.exporting import export_model
from launch.use_cases import make_workload, resolve
from launch.workers.case_description import describe
from launch.workers.task import Purpose, Task
from tests.launch.use_cases.heard import Heard

FILE = Path(__file__).parents[1] / "cases/hf_cases.py"
"""Not imported here: every process of pytest would load the library."""


def facts_of(function: str, *settings: str):
    workload = make_workload(f"hf:{FILE}:{function}", settings=settings)
    case = resolve(workload.use_case).load()
    return describe(Task(purpose=Purpose.DESCRIBE, workload=workload), case, Heard())


def batch_and_weight(function: str):
    case = resolve(f"hf:{FILE}:{function}").load()
    dataset = case.dataset(None, train=True)
    batch = case.collate([dataset[index] for index in range(7)])
    return batch, float(case.weight(batch))


def test_a_causal_model_counts_no_first_label():
    batch, weight = batch_and_weight("gpt2")
    assert weight == (batch["labels"][:, 1:] != -100).sum() != (batch["labels"] != -100).sum()


@pytest.mark.parametrize("function", ["bert", "t5"])
def test_other_models_count_every_label(function):
    """T5's name has the causal loss in the library's table, and its code does not use it."""
    batch, weight = batch_and_weight(function)
    assert weight == (batch["labels"] != -100).sum()


def test_methods_that_stand_on_what_the_function_returns_are_named():
    case = resolve(f"hf:{FILE}:gpt2").load()
    own = ("model", "dataset", "optimizer", "step", "weight", "collate")
    assert find_own_methods(case) == own


def test_columns_that_the_model_has_no_argument_for_are_dropped_as_by_a_trainer():
    """The story: the data of a tutorial failed by ``unexpected keyword argument 'idx'``."""
    batch, weight = batch_and_weight("table")
    assert batch.keys() == {"input_ids", "attention_mask", "labels"}
    assert weight == 7


def test_collator_is_given_every_column_where_the_function_says_so():
    case = resolve(f"hf:{FILE}:whole_table").load()
    assert case.collate([case.dataset(None, train=True)[0]]) == {"texts": ["a text"]}


def test_sample_of_nothing_that_the_model_knows_is_refused_with_the_way_out():
    case = resolve(f"hf:{FILE}:table").load()
    with pytest.raises(UseCaseError, match=r'columns texts: .* "remove_unused_columns": False'):
        case.collate([{"texts": "a text"}])


def test_a_classifier_counts_samples():
    assert batch_and_weight("classifier")[1] == 7


@pytest.mark.parametrize("function", ["gpt2", "bert", "t5", "classifier", "plain"])
def test_losses_and_gradients_of_halves_add_up(function):
    facts = facts_of(function)  # which compares them, and refuses what does not
    assert facts.train_samples == 13
    assert facts.default_batch == (32 if function == "plain" else 8) or facts.default_batch == 13


def test_the_count_follows_what_the_loss_is_given_and_no_name():
    """As the mean of the summed cross entropies shows, computed by hand."""
    case = resolve(f"hf:{FILE}:gpt2").load()
    torch.manual_seed(0)
    model = case.model()
    dataset = case.dataset(None, train=True)
    batch = case.collate([dataset[index] for index in range(5)])
    logits = model(**batch).logits[:, :-1].flatten(0, 1)
    summed = torch.nn.functional.cross_entropy(
        logits, batch["labels"][:, 1:].flatten(), reduction="sum"
    )
    torch.testing.assert_close(summed / case.weight(batch), case.step(model, batch))


@pytest.mark.parametrize("function", ["gpt2", "t5"])
def test_no_part_of_a_model_keeps_keys_and_values(function):
    """The story: T5's decoder, which has a configuration of its own, kept them in each step."""
    case = resolve(f"hf:{FILE}:{function}").load()
    model, dataset = case.model(), case.dataset(None, train=True)
    output = model(**case.collate([dataset[index] for index in range(2)]))
    assert output.past_key_values is None


def test_settings_reach_the_function():
    facts = facts_of("gpt2", "texts=29")
    assert facts.train_samples == 29
    assert facts.validation_samples == 5
    assert facts_of("gpt2", "width=8").parameter_count < facts.parameter_count


@pytest.mark.parametrize(
    ("function", "given"),
    [
        ("gpt2", ["input_ids", "attention_mask"]),
        pytest.param("classifier", ["input_ids", "attention_mask"], marks=pytest.mark.long),
    ],
)
def test_an_onnx_file_is_asked_for_no_labels_where_the_model_needs_none(function, given, tmp_path):
    case = resolve(f"hf:{FILE}:{function}").load()
    path = tmp_path / "model.onnx"
    export_model(case, case.model(), case.dataset(None, train=True), path)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    assert [one.name for one in session.get_inputs()] == given


@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("unlabelled", "without a loss, from a batch of input_ids, attention_mask: give it labels"),
        ("streamed", "train_dataset is a Stream, whose samples have no numbers"),
        ("splits", "train_dataset is a dict of train, test: give one of them"),
        ("misspelt", "lacks 'train_dataset'"),
        ("nothing", r"nothing\(\) gave NoneType"),
        ("below_one", "batch_size=-8: use a whole number of at least 1"),
        ("SIZES", "found a dict: name a function"),
    ],
)
def test_what_cannot_be_trained_is_refused_in_one_line(function, words):
    with pytest.raises(UseCaseError, match=words) as caught:
        facts_of(function)
    assert re.match(r"use case hf:/.*: .+: .+", str(caught.value))
    assert "\n" not in str(caught.value)


def test_a_limit_of_0_is_refused():
    """The story: to a Trainer it is no limit, and here no weight was ever moved."""
    with pytest.raises(UseCaseError, match="has max_gradient_norm=0: use a number above 0, or "):
        facts_of("still")


def test_a_name_without_a_function_is_told_how_to_write_it():
    with pytest.raises(UseCaseError, match=r"write hf:path/to/file.py:make"):
        resolve(f"hf:{FILE}")
