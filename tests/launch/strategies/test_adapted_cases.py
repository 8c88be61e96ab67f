"""What every strategy makes of a LightningModule and a model of `transformers`.

Each is held against a loop of its own, written as in the libraries' guides, without an adapter.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import pytest
import torch
from conftest import SEED
from one_process import TOLERANCE, largest_error
from strategy_homes import EVERY, KINDS

from launch.data.samples import epoch_batches
from launch.strategies import load_strategy
from launch.workers.fork_server import ForkServer
from launch.workload import Workload

pytestmark = pytest.mark.long  # to load both libraries takes ten seconds

CASES = Path(__file__).parents[1] / "cases"
LIGHTNING = f"lightning:{CASES / 'lightning_cases.py'}"
TRANSFORMERS = f"hf:{CASES / 'hf_cases.py'}"
State = dict[str, torch.Tensor]

LIBRARIES = """
import lightning
from transformers import BertForMaskedLM, GPT2LMHeadModel, T5ForConditionalGeneration
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    """A fork server that has loaded the libraries, which takes seconds, once for all workers."""
    folder = tmp_path_factory.mktemp("loaded")
    (folder / "sitecustomize.py").write_text(LIBRARIES)
    paths = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PYTHONPATH", os.pathsep.join(paths))
        environment.setenv("DDLPLAN_CACHE", str(folder / "cache"))
        with ForkServer() as started:
            started.wait_until_ready()
            yield started


@cache
def loop_of_lightning(
    name: str, data: str | None, node_batch: int, epochs: int = 1
) -> tuple[State, State]:
    """Weights at the start, and after a loop over the module's own methods."""
    import lightning_cases  # here: every process of pytest imports this file

    torch.manual_seed(SEED)
    module = getattr(lightning_cases, name)()
    start = {name: value.clone() for name, value in module.state_dict().items()}
    source = module if data is None else getattr(lightning_cases, data)()
    source.setup("fit")
    loader = source.train_dataloader()
    found = module.configure_optimizers()
    optimizer = found["optimizer"] if isinstance(found, dict) else found
    schedule = found["lr_scheduler"] if isinstance(found, dict) else None
    for epoch in range(epochs):
        for indices in epoch_batches(len(loader.dataset), node_batch, seed=SEED, epoch=epoch):
            batch = loader.collate_fn([loader.dataset[index] for index in indices])
            optimizer.zero_grad()
            loss = module.training_step(batch) if data else module.training_step(batch, 0)
            (loss["loss"] if isinstance(loss, dict) else loss).backward()
            optimizer.step()
            if schedule and schedule["interval"] == "step":
                schedule["scheduler"].step()
        if schedule and schedule["interval"] == "epoch":
            schedule["scheduler"].step()
    return start, module.state_dict()


FIRST, ALL = slice(1), slice(None)
"""Of the plans of a strategy."""


def check_plans(
    home, file: str, case: str, error: Callable[[State], float], plans: slice, epochs=1
) -> None:
    """Train with plans of a strategy, or see it refuse to cut a step."""
    uncut = replace(home.facts, uncut_reason="a step of its own")
    is_refused = load_strategy(home.name).obstacle(uncut, home.node) is not None
    if not is_refused:
        for plan in home.plans()[plans]:
            plan = replace(plan, node_batch=8)
            assert error(home.training.run(plan, case, file=file, epochs=epochs)) < TOLERANCE
        return
    workload = Workload(use_case=f"{file}:{case}", seed=SEED)
    plan = replace(home.plans()[-1], node_batch=16)
    failure = home.training.failure_of("", plan, workload=workload)
    assert "has a step() of its own, which cannot be cut into stages: " in failure.message


@EVERY
def test_gradients_of_a_lightning_module_equal_those_of_its_own_loop(home):
    """Padded texts, whose tokens count, and a last batch of five."""
    start, end = loop_of_lightning("TextGradient", "TextData", 8)
    expected = {key: start[key] - end[key] for key in start}

    def error(weights: State) -> float:
        return largest_error({key: start[key] - weights[key] for key in start}, expected)

    check_plans(home, LIGHTNING, "TextGradient:TextData", error, ALL)


@EVERY
@pytest.mark.parametrize("module", ["Text", "TextByEpoch"])
def test_weights_of_a_lightning_module_equal_those_of_its_own_loop(module, home):
    """Two groups, AdamW, and a schedule by step or by epoch."""
    _, end = loop_of_lightning(module, "TextData", 8, epochs=3)
    error = partial(largest_error, theirs=end)
    check_plans(home, LIGHTNING, f"{module}:TextData", error, FIRST, epochs=3)


@EVERY
def test_a_lightning_module_with_its_own_loader_trains_as_its_own_loop(home):
    _, end = loop_of_lightning("Net", None, 8)
    check_plans(home, LIGHTNING, "Net", partial(largest_error, theirs=end), FIRST)


@cache
def loop_of_transformers(name: str, node_batch: int) -> tuple[State, State]:
    """Weights at the start, and after an epoch of a plain loop."""
    import hf_cases

    torch.manual_seed(SEED)
    made = getattr(hf_cases, name)()
    model, samples = made["model"], made["train_dataset"]
    model.train()
    start = {key: value.clone() for key, value in model.state_dict().items()}
    optimizer = made["optimizer"](model.parameters())
    for indices in epoch_batches(len(samples), node_batch, seed=SEED, epoch=0):
        batch = made["data_collator"]([samples[index] for index in indices])
        optimizer.zero_grad()
        model(**batch).loss.backward()
        optimizer.step()
    return start, model.state_dict()


def assert_gradients_are_those_of_its_own_loop(name_of_model: str, home) -> None:
    start, end = loop_of_transformers(name_of_model, 8)
    # A bias of the keys moves all scores of a query alike, which softmax takes away again: its
    # gradient is 0, and what is found is an error of rounding.
    moved = [key for key in start if not torch.equal(start[key], end[key])]
    moved = [key for key in moved if not key.endswith("attention.self.key.bias")]
    expected = {key: start[key] - end[key] for key in moved}

    def error(weights: State) -> float:
        gradients = {key: start[key] - weights[key] for key in moved if key in weights}
        assert len(gradients) >= len(moved) - 1  # a tied tensor is stored once
        return largest_error(gradients, {key: expected[key] for key in gradients})

    check_plans(home, TRANSFORMERS, name_of_model, error, ALL)


@EVERY
def test_gradients_of_a_transformers_model_equal_those_of_its_own_loop(home):
    """Padded texts, of whose labels some do not count, and a last batch of five."""
    assert_gradients_are_those_of_its_own_loop("gpt2", home)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("name_of_model", ["bert", "t5", "classifier"])
def test_gradients_of_other_transformers_models_equal_those_of_their_own_loops(name_of_model, home):
    assert_gradients_are_those_of_its_own_loop(name_of_model, home)
