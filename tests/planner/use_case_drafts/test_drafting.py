"""Use cases that are written from scripts train as the scripts do; what is unsure is marked."""

from __future__ import annotations

import ast
import re
import runpy
import sys
from pathlib import Path
from textwrap import indent

import pytest
import torch
from torch.utils.data import DataLoader

sys.path.append(str(Path(__file__).parent))

import drafted_scripts

from planner.use_case_drafts.drafting import draft_use_case
from planner.use_case_drafts.writing import file_of, todos_of
from tests.planner.use_case_drafts.drafts import EXAMPLES, draft_of, load_case


def trained_by(case) -> dict[str, torch.Tensor]:
    """Train an epoch in the order of the samples, as the scripts do."""
    torch.manual_seed(7)
    model = case.model()
    optimizer = case.optimizer(model.parameters())
    samples = case.dataset(None, train=True)
    loader = DataLoader(samples, case.default_batch, collate_fn=case.collate)
    schedule = case.schedule(optimizer, len(loader), 1)
    for batch in loader:
        optimizer.zero_grad()
        case.step(model, batch).backward()
        if case.max_gradient_norm is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), case.max_gradient_norm)
        optimizer.step()
        if schedule is not None:
            schedule.step()
    return model.state_dict()


@pytest.mark.parametrize("name", ["IN_FUNCTIONS", "AT_TOP_LEVEL"])
def test_a_use_case_of_a_script_trains_to_the_weights_of_the_script(name, tmp_path, monkeypatch):
    text = getattr(drafted_scripts, name)
    case = load_case(draft_of(text, tmp_path), tmp_path)
    monkeypatch.setattr(sys, "argv", ["train.py"])
    ran = runpy.run_path(str(tmp_path / "my train.py"), run_name="__main__")
    expected = ran["trained"].state_dict()
    weights = trained_by(case)
    assert weights.keys() == expected.keys()
    for key, value in expected.items():
        torch.testing.assert_close(weights[key], value)


def test_a_script_in_functions_leaves_nothing_to_do(tmp_path):
    text = draft_of(drafted_scripts.IN_FUNCTIONS, tmp_path)
    assert todos_of(text) == []
    assert "def __init__(self, samples: int = 40, width: int = 4, lr: float = 1.0):" in text
    assert "default_batch = 8" in text
    assert "def loss(self, output, target):" in text
    assert "# Points of a grid" in text  # code that is taken over keeps its comments
    case = load_case(text, tmp_path)
    assert (len(case.dataset(None, train=True)), len(case.dataset(None, train=False))) == (40, 10)


def test_a_script_at_top_level_keeps_collate_schedule_and_the_limit_of_its_gradient(tmp_path):
    """The story: a schedule made of two others gave three methods, with an optimizer of their own.

    An optimizer that a function of the script makes of `of=model.parameters()` was called a bug.
    """
    text = draft_of(drafted_scripts.AT_TOP_LEVEL, tmp_path)
    assert [todo.text for todo in todos_of(text)] == [
        "validation samples: my train.py has none; these are those for training"
    ]
    case = load_case(text, tmp_path)
    assert (case.default_batch, case.max_gradient_norm) == (10, 0.05)
    assert "steps = steps_per_epoch\n" in text
    assert text.count("def schedule(") == 1
    assert "return descending(rate=0.5, of=parameters)" in text
    assert "cuda" not in text
    assert "print" not in text


@pytest.mark.parametrize(
    ("name", "typed"),
    [
        ("IN_FUNCTIONS", ["args", "optimizer", "test_loader"]),
        ("AT_TOP_LEVEL", ["optimizer", "scheduler"]),
    ],
)
def test_names_with_a_type_are_found_as_those_without(name, typed, tmp_path):
    """The story: a schedule was left out, and a use case read the options of ddlplan."""
    text = getattr(drafted_scripts, name)
    annotated = re.sub(rf"^( *)({'|'.join(typed)}) = ", r"\1\2: object = ", text, flags=re.M)
    assert annotated.count(": object = ") == len(typed)
    assert draft_of(annotated, tmp_path) == draft_of(text, tmp_path)


@pytest.mark.parametrize(
    ("file", "name"), [("none.py", "CaseNone"), ("3d-net.py", "Case3dNet"), ("net.py", "CaseNet")]
)
def test_class_has_a_name_that_python_takes_and_the_script_does_not_have(file, name, tmp_path):
    """The story: of a script none.py it was None, and its file no Python."""
    script = tmp_path / file
    script.write_text(drafted_scripts.IN_FUNCTIONS)
    draft = draft_use_case(script)
    assert draft.class_name == name
    ast.parse(file_of(draft))


def test_a_text_in_triple_quotes_stays_as_it_is_and_a_loss_may_stand_in_an_assignment(tmp_path):
    script = """
import torch
from torch.utils.data import DataLoader, TensorDataset

text = '''ab
    cd
'''
codes = torch.tensor([float(ord(letter)) for letter in text]).reshape(-1, 1)
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for inputs, target in DataLoader(TensorDataset(codes, codes), batch_size=2):
    optimizer.zero_grad()
    _ = (model(inputs) - target).square().mean().backward()
    optimizer.step()
"""
    case = load_case(draft_of(script, tmp_path), tmp_path)
    letters = [chr(int(code)) for code, _ in case.dataset(None, train=True)]
    assert "".join(letters) == "ab\n    cd\n"


def changed_script(script: str, old: str, new: str) -> str:
    assert script.count(old) == 1
    return script.replace(old, new)


def test_parameters_that_the_script_freezes_in_a_loop_stay_frozen(tmp_path):
    """The story: the loop was left out, so that a model was trained of which the head should be."""
    loop = (
        "for layer in [trained[0]]:\n"
        "    for parameter in layer.parameters():\n"
        "        parameter.requires_grad = False\n"
    )
    script = changed_script(drafted_scripts.AT_TOP_LEVEL, "print(trained)\n", loop)
    case = load_case(draft_of(script, tmp_path), tmp_path)
    are_trained = [parameter.requires_grad for parameter in case.model().parameters()]
    assert are_trained == [False, False, True, True]


def test_a_function_whose_argument_has_the_name_of_the_model_is_no_part_of_it(tmp_path):
    """The story: its definition, and what it needs, became a part of the method `model`."""
    function = "\n\ndef show(trained):\n    trained.eval()\n\n\n"
    script = changed_script(drafted_scripts.AT_TOP_LEVEL, "print(trained)\n", function)
    assert "def show" not in draft_of(script, tmp_path)


def test_an_optimizer_of_a_part_of_the_model_is_marked(tmp_path):
    """The story: it was given all parameters, and which model it is of was not found."""
    script = changed_script(
        drafted_scripts.IN_FUNCTIONS,
        "Adadelta(model.parameters()",
        "Adadelta(model.second.parameters()",
    )
    text = draft_of(script, tmp_path)
    (todo,) = todos_of(text)
    assert todo.text == "of model.second.parameters(), make what these parameters allow"
    assert "NotImplementedError" not in text


@pytest.mark.parametrize("holder", ["ArgumentParser().parse_args()", "Namespace()"])
def test_what_holds_a_model_is_not_taken_for_it(holder, tmp_path):
    """The story: the options were returned as the model, or the draft ended with StopIteration."""
    script = f"""
import argparse

import torch
from torch.utils.data import DataLoader, TensorDataset

args = argparse.{holder}
points = torch.arange(8.0).reshape(4, 2)
args.net = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(args.net.parameters(), lr=0.01)
for inputs, target in DataLoader(TensorDataset(points, points.sum(1)), batch_size=2):
    optimizer.zero_grad()
    loss = (args.net(inputs).squeeze(1) - target).square().mean()
    loss.backward()
    optimizer.step()
"""
    text = draft_of(script, tmp_path)
    marked = [todo.text for todo in todos_of(text)]
    assert "make the model: my train.py does not show which it is" in marked
    assert "of args.net.parameters(), make what these parameters allow" in marked
    assert 'raise NotImplementedError("TODO: model()")' in text


def test_only_torch_compiles_a_model(tmp_path):
    """The story: `re.compile` was left out too, and a text was asked for its matches."""
    script = changed_script(drafted_scripts.AT_TOP_LEVEL, "import argparse\n", "import re\n")
    script = changed_script(script, "Points(40)", "Points(int(NUMBER.match('40')[0]))")
    script = changed_script(script, "WIDTH = 4\n", "WIDTH = 4\nNUMBER = re.compile('[0-9]+')\n")
    case = load_case(draft_of(script, tmp_path), tmp_path)
    assert len(case.dataset(None, train=True)) == 40


@pytest.mark.parametrize(
    "kind", ["scores.dtype", "torch.double", "device, torch.double", "dtype=kind"]
)
def test_a_change_of_the_kind_of_numbers_is_no_move_to_a_device(kind, tmp_path):
    """The story: labels that were made like the scores stayed whole numbers."""
    script = changed_script(
        drafted_scripts.AT_TOP_LEVEL, '["side"].float().to(device)', f'["side"].to({kind})'
    )
    assert f"].to({kind}))" in draft_of(script, tmp_path)


def test_an_option_that_the_script_sets_itself_is_marked(tmp_path):
    """The story: a learning rate that it scales was the default of its option."""
    reading = "    args = read_arguments()\n"
    script = changed_script(drafted_scripts.IN_FUNCTIONS, reading, f"{reading}    args.lr *= 2\n")
    (todo,) = todos_of(draft_of(script, tmp_path))
    assert todo.text == "the script sets args.lr itself: see that it has that value here"


def test_weights_of_classes_are_found_without_their_name(tmp_path):
    """The story: only `weight=...` was noticed."""
    weighted = "F.nll_loss(output, target, torch.tensor([1.0, 2.0]))"
    script = changed_script(drafted_scripts.IN_FUNCTIONS, "F.nll_loss(output, target)", weighted)
    (todo,) = todos_of(draft_of(script, tmp_path))
    assert todo.text.startswith("give weight(batch)")


@pytest.mark.parametrize("limit", ["0.05, 1", "0.0", "0.05, norm_type=1"])
def test_a_limit_of_another_norm_and_one_that_limits_nothing_are_marked(limit, tmp_path):
    """The story: of another norm, by its place, it was the limit of the Euclidean one."""
    script = changed_script(
        drafted_scripts.AT_TOP_LEVEL, "parameters(), 0.05)", f"parameters(), {limit})"
    )
    text = draft_of(script, tmp_path)
    assert "max_gradient_norm = " not in text
    assert any(todo.text.startswith("max_gradient_norm: ") for todo in todos_of(text))


def test_samples_on_a_device_are_not_taken_for_those_of_validation(tmp_path):
    """The story: the loader for training was found a second time, and nothing said so."""
    script = """
import torch
from torch.utils.data import DataLoader, TensorDataset

device = torch.device("cpu")
points = torch.arange(8.0).reshape(4, 2)
loader = DataLoader(TensorDataset(points.to(device), points.sum(1).to(device)), batch_size=2)
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for inputs, target in loader:
    optimizer.zero_grad()
    loss = (model(inputs).squeeze(1) - target).square().mean()
    loss.backward()
    optimizer.step()
"""
    (todo,) = todos_of(draft_of(script, tmp_path))
    assert todo.text.startswith("validation samples: my train.py has none")


def test_a_schedule_of_a_script_that_adds_up_gradients_is_marked(tmp_path):
    """The story: what it counted in batches was taken for steps, of which there are fewer."""
    steps = "        optimizer.step()\n        scheduler.step()\n"
    fewer = f"        if (number + 1) % 4 == 0:\n{indent(steps, ' ' * 4)}"
    script = changed_script(drafted_scripts.AT_TOP_LEVEL, steps, fewer)
    script = script.replace("for batch in loader", "for number, batch in enumerate(loader)")
    marked = [todo.text for todo in todos_of(draft_of(script, tmp_path))]
    assert any(text.startswith("a step may have several batches of my train.py") for text in marked)


@pytest.mark.parametrize(
    ("counted", "epochs"),
    [
        ('parser.add_argument("--epochs", type=int, default=1)', "args.epochs"),
        ('parser.add_argument("--num-epochs", type=int, default=1)', "args.num_epochs"),
        ("num_epochs = 1", "num_epochs"),
    ],
)
def test_a_schedule_is_over_the_epochs_that_are_trained(counted, epochs, tmp_path):
    """The story: it was over those of the script's default, whatever `launch --epochs` said."""
    lines = f"parser = argparse.ArgumentParser()\n{counted}\nargs = parser.parse_args()\n"
    script = changed_script(
        drafted_scripts.AT_TOP_LEVEL,
        "steps = len(loader)\n",
        f"{lines}steps = len(loader) * {epochs}\n",
    )
    text = draft_of(script, tmp_path)
    assert "        steps = steps_per_epoch * epochs\n" in text
    assert "num_epochs" not in text
    assert "epochs: int" not in text
    (todo,) = todos_of(text)
    assert todo.text.startswith("validation samples: my train.py has none")


def test_a_schedule_that_is_never_stepped_is_marked_as_such(tmp_path):
    """The story: it was said to be stepped once per epoch."""
    script = changed_script(drafted_scripts.AT_TOP_LEVEL, "        scheduler.step()\n", "")
    marked = "\n".join(todo.text for todo in todos_of(draft_of(script, tmp_path)))
    assert re.search(r"SequentialLR\(.*\): my train\.py does not show that it is stepped", marked)
    assert "once per epoch" not in marked


def test_what_is_unsure_is_marked_and_not_guessed(tmp_path):
    text = draft_of(drafted_scripts.UNSURE, tmp_path)
    marked = "\n".join(todo.text for todo in todos_of(text))
    for expected in (
        r"default_batch: the samples of a batch",
        r"open the training samples, of train_loader, or others",
        r"args.width has no default that is written there",
        r"of \[\{'params': model\.parameters\(\), 'lr': 0\.1\}\], make what these parameters allow",
        r"StepLR\(optimizer, 10\): my train\.py steps it once per epoch",
        r"state: kept from one step to the next",
        r"line \d+ of my train\.py divides the loss by 4: left out",
        r"give weight\(batch\)",
    ):
        assert re.search(expected, marked), expected
    assert marked.count("args.width") == 2, "once in each method that reads it"
    assert 'raise NotImplementedError("TODO: dataset()")' in text
    compile(text, "case.py", "exec")


@pytest.mark.parametrize(
    ("name", "unsure"),
    [
        ("TWO_MODELS", {"model", "step"}),
        ("IN_A_CLASS", {"model", "dataset", "step", "optimizer"}),
        ("NO_LOADER", {"dataset", "step"}),
    ],
)
def test_a_method_that_could_only_be_guessed_raises_until_it_is_written(name, unsure, tmp_path):
    """The story: models were made anew in every step, and batches drawn in it."""
    text = draft_of(getattr(drafted_scripts, name), tmp_path)
    assert set(re.findall(r'NotImplementedError\("TODO: (\w+)\(\)"\)', text)) == unsure
    assert len(todos_of(text)) >= len(unsure)


@pytest.mark.parametrize("name", ["plain_loop", "torchrun_ddp", "accelerate_loop"])
def test_examples_need_only_validation_samples(name, tmp_path):
    text = file_of(draft_use_case(EXAMPLES / f"{name}.py"))
    (todo,) = todos_of(text)
    assert todo.text.startswith("validation samples:")
    case = load_case(text, tmp_path)
    first, again = (case.dataset(None, train=True)[5][0] for _ in range(2))
    assert torch.equal(first, again)
    assert case.dataset(None, train=True).is_generated


def test_metric_that_is_left_out_is_named(tmp_path):
    metric = (
        "acc_steps = 4\ngrad_acc = 8\naccuracy = (trained(points).squeeze(1) > 0).float().mean()"
    )
    text = draft_of(f"{drafted_scripts.AT_TOP_LEVEL}\n{metric}\n", tmp_path)
    todo = todos_of(text)[0].text
    line = drafted_scripts.AT_TOP_LEVEL.count("\n") + 4
    assert re.match(rf"line {line} computes a metric: left out; metrics\(output, target\)", todo)
