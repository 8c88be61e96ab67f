"""A LightningModule as a use case: what it takes from Lightning, and what it refuses by name."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from launch.adapters._batch_number import takes_number
from launch.description.contract_use import find_own_methods
from launch.errors import UseCaseError
from launch.packages.install_command import install_command
from launch.packages.malicious_releases import MALICIOUS_RELEASES
from launch.use_cases import make_workload, resolve
from launch.workers.case_description import describe
from launch.workers.task import Purpose, Task
from tests.launch.use_cases.heard import Heard

FILE = Path(__file__).parents[1] / "cases/lightning_cases.py"
"""Not imported here: every process of pytest would load the library."""


def spec(objects: str) -> str:
    return f"lightning:{FILE}:{objects}"


def facts_of(objects: str, *settings: str, onnx: str | None = None, heard: Heard | None = None):
    workload = make_workload(spec(objects), settings=settings)
    case = resolve(workload.use_case).load()
    task = Task(purpose=Purpose.DESCRIBE, workload=workload, onnx=onnx)
    return describe(task, case, heard or Heard())


def test_facts_are_those_of_module_loader_and_optimizer():
    facts = facts_of("Text:TextData")
    assert (facts.default_batch, facts.train_samples, facts.validation_samples) == (8, 45, 10)
    assert facts.has_weights
    assert facts.has_fused_optimizer
    assert facts.updates_in_parts
    assert facts.max_stages == 1


@pytest.mark.parametrize(
    ("objects", "more"),
    [
        ("Net", ()),
        ("NamedLayer", ()),
        ("Text:TextData", ("weight", "collate", "schedule", "prepare")),
    ],
)
def test_methods_that_stand_on_the_users_own_are_named(objects, more):
    case = resolve(spec(objects)).load()
    assert find_own_methods(case) == ("model", "dataset", "optimizer", "step", *more)


def test_module_that_a_function_makes_has_its_weight_and_its_limit_of_the_gradient():
    """The story: both were looked for on the function, and another training was made."""
    case = resolve(spec("make_text:TextData")).load()
    assert "weight" in find_own_methods(case)
    assert case.max_gradient_norm == 0.5  # the model is made by now
    with pytest.raises(UseCaseError, match=r"max_gradient_norm=-1.0: use a number above 0"):
        facts_of("make_text:TextData", "limit=-1")


def test_settings_go_to_whichever_constructor_has_them():
    plain, changed = facts_of("Text:TextData"), facts_of("Text:TextData", "width=20", "texts=33")
    assert changed.train_samples == 33
    assert changed.parameter_count == plain.parameter_count + 4 * (8 + 1 + 11)
    assert changed.digest != plain.digest


def test_data_of_equal_form_are_another_use_case():
    assert facts_of("Text:TextData").digest != facts_of("Text:SameFormData").digest


def test_a_module_whose_step_never_calls_it_is_no_onnx_file():
    with pytest.raises(UseCaseError, match=r"--onnx: .*: call .* self\(...\) in training_step"):
        facts_of("Text:TextData", onnx="model.onnx")


def test_a_setting_that_no_constructor_has_is_refused():
    with pytest.raises(UseCaseError, match="no setting 'widht': did you mean width"):
        facts_of("Text:TextData", "widht=20")


@pytest.mark.long
def test_the_digest_covers_the_file_and_not_its_place(tmp_path):
    """Each by a process that has imported Lightning and none of the files."""
    names = []
    for folder, change in (("a", ""), ("b", ""), ("c", "\n# changed")):
        file = tmp_path / folder / "my_net.py"
        file.parent.mkdir()
        file.write_text(OWN + change)
        names.append(f"lightning:{file}:Net")
    words = [sys.executable, "-c", DIGEST, *names]
    ran = subprocess.run(words, capture_output=True, check=True, text=True)
    first, moved, changed = ran.stdout.split()
    assert first == moved != changed


OWN = """
import lightning, torch
from torch.utils.data import DataLoader, TensorDataset
class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)
    def training_step(self, batch, batch_idx):
        return self.layer(batch[0]).mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
    def train_dataloader(self):
        return DataLoader(TensorDataset(torch.zeros(8, 2)), batch_size=4)
"""
DIGEST = """
import os, sys
import lightning
from launch.use_cases import resolve
from launch.description.case_digest import digest_case
for name in sys.argv[1:]:
    if child := os.fork():
        assert os.waitpid(child, 0)[1] == 0
    else:
        case = resolve(name).load()
        print(digest_case(case, case.model(), [case.dataset(None, train=True)]), flush=True)
        os._exit(0)
"""


@pytest.mark.parametrize(
    ("objects", "words"),
    [
        ("Manual", "automatic_optimization=False"),
        ("TwoOptimizers", "configure_optimizers gave 2 optimizers"),
        ("Plateau", "the schedule ReduceLROnPlateau"),
        ("AsksTrainer", r"self.trainer.max_epochs is used in training_step\(\)"),
        (
            "AsksTrainerForSteps",
            r"self.trainer.estimated_stepping_batches is used in configure_optimizers\(\)",
        ),
        ("AsksForTheEpoch", r"self.trainer.current_epoch is used in training_step\(\)"),
        ("Silent", "training_step gave NoneType"),
        ("Hooked", r"Hooked has on_before_optimizer_step\(\)"),
        ("Text:HookedData", r"HookedData has on_after_batch_transfer\(\)"),
        ("Sampled", "sampler=WeightedRandomSampler"),
        ("OwnBatches", "batch_sampler=list"),
        ("Streamed", r"IterableDataset \(Stream\)"),
        ("Unequal", "different collate_fn"),
        ("NoLoader", r"has no train_dataloader\(\)"),
        ("made", "found a Net: name a class"),
        ("Pictures", "Pictures is no LightningModule"),
    ],
)
def test_what_only_a_trainer_can_do_is_refused_by_its_name(objects, words):
    with pytest.raises(UseCaseError, match=words) as caught:
        facts_of(objects, *(["size=3"] if objects == "Pictures" else []))
    message = str(caught.value)
    assert re.match(r"use case lightning:/.*: .+: .+", message)
    assert "\n" not in message


@pytest.mark.parametrize(
    ("objects", "said"),
    [
        ("Plots", ["training_step of Plots reads number"]),
        ("Net", []),
        ("Text:TextData", []),
    ],
)
def test_a_step_that_reads_the_number_of_its_batch_is_warned_of(objects, said):
    """The story: a module that plots at every 100th batch plotted in every step, without a word."""
    heard = Heard()
    facts_of(objects, heard=heard)
    assert [message.partition(",")[0] for message in heard.warnings] == said
    assert all("let the module count them itself" in message for message in heard.warnings)


@pytest.mark.parametrize(
    ("step", "takes"),
    [
        (lambda batch: 0, False),
        (lambda batch, number: 0, True),
        (lambda *both: 0, True),
        (lambda batch, *, scale=1: 0, False),
        (lambda batch, **settings: 0, False),
    ],
)
def test_a_step_is_given_the_number_of_its_batch_where_a_trainer_would_give_it(step, takes):
    """The story: one with keywords of its own got the number in their place, and failed; one that
    takes whatever comes did not get it."""
    assert takes_number(step) is takes


@pytest.mark.parametrize("text", ["lightning:", "lightning:Net", f"lightning:{FILE}"])
def test_a_name_without_an_object_is_told_how_to_write_it(text):
    with pytest.raises(UseCaseError, match=r"write lightning:path/to/file.py:Module"):
        resolve(text)


@pytest.mark.parametrize("objects", ["Split", "Text:SplitData"])
def test_samples_that_are_drawn_are_the_same_in_every_process(objects):
    """Whatever was drawn before, and however many models were made."""
    drawn = []
    for models in (0, 1, 3):
        case = resolve(spec(objects)).load()
        torch.manual_seed(models)
        for _ in range(models):
            case.model()
        drawn.append(list(case.dataset(None, train=True).indices))
    assert drawn[0] == drawn[1] == drawn[2] != sorted(drawn[0])


def test_a_module_inside_logs_nothing_either():
    assert facts_of("Nested").train_samples == 16


def test_a_missing_object_of_the_data_is_told_before_any_import():
    with pytest.raises(UseCaseError, match="there is no 'TextDate': did you mean TextData"):
        make_workload(spec("Text:TextDate"))


def test_a_missing_library_is_one_line_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setattr("launch.use_cases._locations.find_spec", lambda _: None)
    with pytest.raises(UseCaseError) as caught:
        make_workload(spec("Net"))
    said = f": lightning is not installed: {install_command('lightning')}"
    assert str(caught.value).endswith(said)


def test_a_malicious_release_is_refused_before_anything_is_imported(install_lightning):
    """Importing it is enough to lose one's credentials."""
    install_lightning("2.6.3")
    with pytest.raises(UseCaseError) as caught:
        make_workload(spec("Net"))
    assert re.fullmatch(
        r"use case lightning:/\S+:Net: lightning 2\.6\.3 is a malicious release .*: .*pip install "
        r".*'lightning!=2\.6\.2,!=2\.6\.3', and renew .*",
        str(caught.value),
    )
    install_lightning("2.6.4")
    make_workload(spec("Net"))


def test_releases_that_are_refused_are_those_that_no_extra_installs():
    text = (Path(__file__).parents[3] / "pyproject.toml").read_text()
    wanted = re.findall(r'"(\w+)>=[^"]*?((?:,!=[0-9.]+)+)"', text)
    assert wanted
    for package, excluded in wanted:
        assert tuple(excluded.split(",!=")[1:]) == MALICIOUS_RELEASES[package]


def test_nothing_of_lightning_is_imported_for_another_use_case():
    code = (
        "import sys; from launch.use_cases import resolve; resolve('mnist_cnn').load(); "
        "import launch.adapters.lightning; "
        "assert not {'lightning', 'pytorch_lightning', 'transformers'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_compiled_module_runs_its_training_step_compiled():
    case = resolve(spec("Net")).load()
    torch.manual_seed(0)
    module = case.model()
    batch = case.collate([case.dataset(None, train=True)[i] for i in range(4)])
    compiled = torch.compile(module, backend="eager", dynamic=False)
    step = case._training_step(compiled)
    assert step is case._training_step(compiled)
    assert step != module.training_step
    assert torch.equal(case.step(module, batch), module.training_step(batch, 0)["loss"])
