"""However a model uses a parameter, it finds the values that one process has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import hidden_cases
import pytest
import torch
from jobs_of_nodes import Spec, want_pairs
from one_process import TOLERANCE, error_of_job
from tiny import hidden_layers, kept_memory
from torch import nn
from torch.nn import functional

from launch.errors import UseCaseError
from launch.plan import Plan
from launch.reports import Warned
from tests.launch.training.averaging.late_training import LateTraining, error_of_late

PAIR = Plan(strategy="processes", processes=2, replicas=2, node_batch=5)
ALONE = Plan(strategy="sequential", node_batch=3)
THREADS = Plan(strategy="threads", threads_per_process=2, replicas=2, node_batch=3)
slow = partial(Spec, file=Path(hidden_cases.__file__), has_slow_sums=True)
# The other layers are trained in one process below, which takes less.
IS_LATE = {
    "ViewFromInitCase": False,
    "DetachFromInitCase": False,
    "PicturesFromInitCase": False,
    "TiedCase": True,
    "UsedByLossCase": True,
    "KeptByOneCase": False,
}
HIDDEN = {name: slow(name, [PAIR, ALONE]) for name in IS_LATE} | {
    "DetachFromInitCase": slow("DetachFromInitCase", [PAIR, THREADS]),
    # The parameter moves twice: into this memory format, and into shared memory.
    "PicturesFromInitCase": slow(
        "PicturesFromInitCase",
        [replace(plan, memory_format="channels_last") for plan in (PAIR, ALONE)],
    ),
}
want_pairs("hidden", HIDDEN, are_long=True)


@pytest.mark.long
@pytest.mark.parametrize("name", HIDDEN)
def test_weights_of_several_nodes_equal_those_of_one_process(name, trained_pair):
    assert error_of_job(HIDDEN[name], trained_pair("hidden", name), hidden_cases) < TOLERANCE


@pytest.mark.long
@pytest.mark.parametrize(("name", "is_late"), IS_LATE.items())
def test_each_node_says_why_its_updates_are_not_late(name, is_late, trained_pair):
    said = [report.message for report in trained_pair("hidden", name).of(Warned)]
    assert len(said) == (0 if is_late else 1)  # the reports are those of the first node
    assert all("not left to the next step" in message for message in said)


def held_against_one_process(layer: Callable[[], nn.Module]) -> LateTraining:
    """Train a network around a layer for twelve steps, with late updates and without."""
    generator = torch.Generator().manual_seed(1)
    batches = [torch.randn(4, 3, 8, 8, generator=generator) for _ in range(12)]
    targets = torch.tensor([0, 1, 2, 0])

    def loss_of(output: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(output, targets)

    late, error = error_of_late(lambda: hidden_layers.Around(layer()), batches, loss_of, lr=0.1)
    assert error < TOLERANCE
    return late


ALWAYS_LATE = [
    kept_memory.CloneKept,
    kept_memory.Averaged,
    hidden_layers.Limited,
    hidden_layers.EverySecondTime,
    hidden_layers.Recomputed,
    hidden_layers.UsedInBackward,
    hidden_layers.AnnouncedAfterAWhile,
    hidden_layers.Functional,
    kept_memory.Tied,
    hidden_layers.spectral_norm,
    hidden_layers.old_spectral_norm,
]
NEVER_LATE = {
    kept_memory.ViewFromInit: "past PyTorch's Python functions",
    kept_memory.DetachFromInit: "shares the memory of parameter 'layer.weight'",
    kept_memory.DetachKept: "shares the memory of parameter 'layer.weight'",
    kept_memory.KeptEverySecondTime: "shares the memory of parameter 'layer.weight'",
    kept_memory.KeptForArgmax: "shares the memory of parameter 'layer.weight'",
    kept_memory.StateKept: "shares the memory of parameter 'layer.weight'",
    kept_memory.GraphKept: "shares the memory of parameter 'layer.weight'",
    kept_memory.SharedWithFrozen: "shares the memory of parameter 'layer.weight'",
    kept_memory.NumpyKept: "to other programs, such as NumPy",
    kept_memory.AddressKept: "to other programs, such as NumPy",
    kept_memory.StorageKept: "to other programs, such as NumPy",
    hidden_layers.OwnFunction: "past PyTorch's Python functions",
    hidden_layers.scripted: "past PyTorch's Python functions",
    hidden_layers.ScriptedWithoutGraph: "past PyTorch's Python functions",
}
REFUSED = {
    hidden_layers.HiddenAfterAWhile: "'layer.weight' is used before its update",
    hidden_layers.InAThread: "'layer.weight' is used before its update",
    hidden_layers.Replaced: "puts other memory in the place of parameter 'layer.weight'",
    kept_memory.TwoOfOneMemory: "'layer.there.weight' shares its memory",
    kept_memory.NumpyFromInit: "'layer.weight' shares its memory",
    kept_memory.InOneTensor: "'layer.there' shares its memory",
}


@pytest.mark.parametrize("layer", ALWAYS_LATE)
def test_updates_are_late_where_every_use_is_seen(layer):
    late = held_against_one_process(layer)
    assert late.is_late == [False] * 2 + [True] * 10
    assert late.notices == []


@pytest.mark.parametrize(("layer", "reason"), NEVER_LATE.items())
def test_no_update_is_late_where_a_use_may_be_unseen(layer, reason):
    late = held_against_one_process(layer)
    assert not any(late.is_late)
    (notice,) = late.notices
    assert reason in notice


def test_updates_are_late_until_a_tensor_is_kept_that_shares_the_memory_of_a_parameter():
    late = held_against_one_process(kept_memory.KeptAfterAWhile)
    kept = hidden_layers.FIRST_STEPS
    assert late.is_late == [False] * 2 + [True] * (kept - 2) + [False] * (12 - kept)
    assert len(late.notices) == 1


@pytest.mark.parametrize(("layer", "reason"), REFUSED.items())
def test_what_cannot_be_made_certain_is_an_error(layer, reason):
    with pytest.raises(UseCaseError, match=reason):
        held_against_one_process(layer)


@pytest.mark.long
def test_compiled_code_that_reads_a_parameter_without_a_graph_is_an_error():
    with pytest.raises(UseCaseError, match="is used before its update"):
        held_against_one_process(hidden_layers.Compiled)
