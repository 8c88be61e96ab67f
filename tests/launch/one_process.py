"""Training in one process, which every other way to train the same samples is held against."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import tiny_cases
import torch
from conftest import SEED

from launch.data.batch import map_tensors
from launch.data.samples import epoch_batches
from launch.plan import Plan
from launch.training.schedule import make_schedule
from launch.use_cases._adapter import adapt_use_case

TOLERANCE = 1e-4
"""Of `largest_error`, in float32."""


def trained_alone(
    case, node_batch: int, epochs: int = 1, dtype: torch.dtype = torch.float32
) -> dict[str, torch.Tensor]:
    """What one process makes of the same samples in the same order, in the plainest way."""
    return _trained_alone(type(case), node_batch, epochs, dtype)


@cache  # each strategy is held against it
def _trained_alone(
    kind: type, node_batch: int, epochs: int, dtype: torch.dtype
) -> dict[str, torch.Tensor]:
    def in_type(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(dtype) if tensor.is_floating_point() else tensor

    case = adapt_use_case(kind(), "tiny")
    torch.manual_seed(SEED)
    model = case.model().to(dtype)
    optimizer = case.optimizer(model.parameters())
    samples = case.dataset(None, train=True)
    steps = -(-len(samples) // node_batch)
    schedule = make_schedule(case, optimizer, steps_per_epoch=steps, epochs=epochs)
    for epoch in range(epochs):
        for batch in epoch_batches(len(samples), node_batch, seed=SEED, epoch=epoch):
            collated = case.collate([samples[index] for index in batch])
            model.zero_grad()
            case.step(model, map_tensors(collated, in_type)).backward()
            if case.max_gradient_norm is not None:
                torch.nn.utils.clip_grad_norm_(model.parameters(), case.max_gradient_norm)
            if float(case.weight(collated)):  # nothing to learn from is no reason to move
                optimizer.step()
            if schedule is not None:
                schedule.step()
    return model.state_dict()


def start_of(case) -> dict[str, torch.Tensor]:
    """Give the weights with which every training of a use case begins."""
    torch.manual_seed(SEED)
    return {name: value.clone() for name, value in case.model().state_dict().items()}


def gradient_error(
    weights: dict[str, torch.Tensor], case, node_batch: int, dtype: torch.dtype = torch.float32
) -> float:
    """Hold the gradients that have led to weights, by one step, against those of one process."""
    start, alone = start_of(case), trained_alone(case, node_batch, dtype=dtype)
    expected = {name: start[name] - alone[name] for name in start}
    return largest_error({name: start[name] - weights[name] for name in start}, expected)


def error_of(
    training: Any, plan: Plan, case: str, *, epochs: int = 1, cases: ModuleType = tiny_cases
) -> float:
    """Train with a plan, and hold the weights against those of one process."""
    alone = trained_alone(getattr(cases, case)(), plan.node_batch, epochs)
    weights = training.run(plan, case, epochs=epochs, file=Path(str(cases.__file__)))
    return largest_error(weights, alone)


def error_of_job(spec: Any, trained: Any, cases: ModuleType = tiny_cases) -> float:
    """Hold the weights of a job of several nodes against those of one process."""
    alone = trained_alone(getattr(cases, spec.case)(), spec.global_batch, spec.epochs)
    return largest_error(trained.weights, alone)


def largest_error(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> float:
    """Largest relative difference of any tensor, in the Euclidean norm."""
    assert ours.keys() == theirs.keys()
    filled = [name for name, value in theirs.items() if value.numel()]
    return max(((ours[k] - theirs[k]).norm() / theirs[k].norm()).item() for k in filled)
