"""Averaging over threads, chunk by chunk, gives what one process with the same samples gives."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
import torch
from averaging_cases import (
    CACHE_LINE,
    ELEMENTWISE,
    SAMPLES,
    STEPS,
    Layers,
    NormalisedSgd,
    SometimesUnused,
    batches,
    fresh,
    momentum_sgd,
)
from torch import nn
from torch.optim import lr_scheduler

from launch.errors import UseCaseError
from launch.local_group.group import LocalThreadGroup
from launch.training.averaging.averaging import GradientAverager
from launch.training.averaging.clipping import GradientClipper
from launch.training.averaging.optimizer import _start_momentum
from launch.training.averaging.update_scope import UpdateScope


class Rows(nn.Module):
    """Looks rows up, whose gradients are sparse."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.Embedding(50, 3, sparse=True)

    def forward(self, pictures):
        indices = (pictures.flatten(1)[:, :4].abs() * 10).long()
        return self.rows(indices).sum((1, 2))[:, None] ** 2


class Replaced(nn.Module):
    """Limits the norm of its weight by putting another tensor in its place."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(27, 1)

    def forward(self, pictures):
        self.layer.weight.data = torch.renorm(self.layer.weight.data, 2, 0, 0.5)
        return self.layer(pictures.flatten(1))


class Anchored(torch.optim.SGD):
    """Draws each element back to where it was at first, which it notes in a memory format."""

    def __init__(self, parameters, lr: float, form: torch.memory_format) -> None:
        super().__init__(parameters, lr=lr)
        for group in self.param_groups:
            for parameter in group["params"]:
                anchor = parameter.detach().clone(memory_format=form)
                self.state[parameter]["anchor"] = anchor

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    pull = parameter - self.state[parameter]["anchor"]
                    parameter.sub_(parameter.grad + pull, alpha=group["lr"])


Make = Callable[..., torch.optim.Optimizer]
MakeSchedule = Callable[[torch.optim.Optimizer], lr_scheduler.LRScheduler]


def train(
    make_model: Callable[[], nn.Module],
    make_optimizer: Make,
    *,
    workers: int = 2,
    max_norm: float | None = None,
    make_schedule: MakeSchedule | None = None,
    watch: Callable[[int, torch.optim.Optimizer], None] = lambda rank, optimizer: None,
    chunk_bytes: int = CACHE_LINE,
    scope: UpdateScope | None = None,
) -> dict[str, torch.Tensor]:
    """Train over threads, averaging; ``watch`` sees each worker's optimizer before the steps."""
    members = LocalThreadGroup.create([()] * workers)
    models = [fresh(make_model) for _ in members]
    optimizers = [make_optimizer(model.parameters()) for model in models]

    def work(rank: int) -> None:
        member, model, optimizer = members[rank], models[rank], optimizers[rank]
        clipper = None if max_norm is None else GradientClipper(max_norm, member)
        averager = GradientAverager(
            model, optimizer, member, clipper=clipper, chunk_bytes=chunk_bytes, scope=scope
        )
        schedule = make_schedule(optimizer) if make_schedule else None
        watch(rank, optimizer)
        for inputs, targets in batches():
            averager.start_step()
            own = slice(rank, None, workers)
            loss = ((model(inputs[own]) - targets[own]) ** 2).sum() / SAMPLES
            loss.backward()
            averager.step(loss.item())
            if schedule is not None:
                schedule.step()

    def work_or_abort(rank: int) -> None:
        try:
            work(rank)
        except BaseException:
            members[0].abort()
            raise

    with ThreadPoolExecutor(workers) as pool:
        for done in [pool.submit(work_or_abort, rank) for rank in range(workers)]:
            done.result()
    return models[-1].state_dict()


def train_alone(
    make_model: Callable[[], nn.Module],
    make_optimizer: Make,
    *,
    max_norm: float | None = None,
    make_schedule: MakeSchedule | None = None,
) -> dict[str, torch.Tensor]:
    model = fresh(make_model)
    optimizer = make_optimizer(model.parameters())
    schedule = make_schedule(optimizer) if make_schedule else None
    for inputs, targets in batches():
        optimizer.zero_grad()
        (((model(inputs) - targets) ** 2).sum() / SAMPLES).backward()
        if max_norm is not None:
            nn.utils.clip_grad_norm_(model.parameters(), max_norm)
        optimizer.step()
        if schedule is not None:
            schedule.step()
    return model.state_dict()


def assert_equal(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> None:
    torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("make", ELEMENTWISE.values(), ids=ELEMENTWISE.keys())
def test_an_elementwise_optimizer_makes_of_chunks_what_it_makes_of_the_whole(make, workers):
    assert_equal(train(Layers, make, workers=workers), train_alone(Layers, make))


@pytest.mark.parametrize("form", [torch.preserve_format, torch.contiguous_format])
@pytest.mark.parametrize("scope", UpdateScope)
def test_state_from_before_the_first_step_stays_with_its_elements(scope, form):
    """The story: of a weight in channels_last, a whole one's state was put into another order, and
    so was that of pieces where the optimizer kept it in the order of the shape."""
    make = partial(Anchored, lr=0.1, form=form)
    assert_equal(train(Layers, make, scope=scope), train_alone(Layers, make))


def test_parameter_that_is_given_other_memory_is_refused():
    """The story: updates went to the memory of before. On one node such a layer never learned, and
    nobody was told."""
    where = "puts other memory in the place of parameter 'layer.weight'"
    with pytest.raises(UseCaseError, match=where):
        train(Replaced, momentum_sgd, workers=1)


def test_whole_parameter_that_one_worker_updates_alone_may_have_any_memory():
    ours = train(Replaced, momentum_sgd, workers=1, scope=UpdateScope.TENSOR)
    assert_equal(ours, train_alone(Replaced, momentum_sgd))


@pytest.mark.parametrize("chunk_bytes", [CACHE_LINE, 3 * CACHE_LINE, 1 << 20])
def test_the_size_of_a_chunk_does_not_matter(chunk_bytes):
    ours = train(Layers, momentum_sgd, chunk_bytes=chunk_bytes)
    assert_equal(ours, train_alone(Layers, momentum_sgd))


@pytest.mark.parametrize("max_norm", [1e-3, 0.5, 1e6])
@pytest.mark.parametrize("workers", [1, 3])
def test_clipping_equals_that_of_one_process(workers, max_norm):
    ours = train(Layers, momentum_sgd, workers=workers, max_norm=max_norm)
    assert_equal(ours, train_alone(Layers, momentum_sgd, max_norm=max_norm))


@pytest.mark.parametrize("max_norm", [None, 0.1])
@pytest.mark.parametrize("make", [momentum_sgd, ELEMENTWISE["SGD fused"], ELEMENTWISE["AdamW"]])
def test_a_parameter_without_gradient_in_a_step_is_left_alone(make, max_norm):
    def prepared(parameters):
        optimizer = make(parameters)
        if optimizer.defaults["fused"]:
            _start_momentum(optimizer)  # as `make_optimizer` does
        return optimizer

    ours = train(SometimesUnused, prepared, max_norm=max_norm)
    assert_equal(ours, train_alone(SometimesUnused, prepared, max_norm=max_norm))


@pytest.mark.parametrize("max_norm", [None, 0.1])
def test_sparse_gradients_are_averaged_as_dense_ones(max_norm):
    ours = train(Rows, momentum_sgd, max_norm=max_norm)

    def dense() -> nn.Module:
        model = Rows()
        model.rows.sparse = False
        return model

    assert_equal(ours, train_alone(dense, momentum_sgd, max_norm=max_norm))


def test_an_optimizer_for_sparse_gradients_gets_sparse_ones():
    make = partial(torch.optim.SparseAdam, lr=0.1)
    assert_equal(train(Rows, make), train_alone(Rows, make))


def test_every_group_keeps_its_settings():
    def make(parameters):
        every = list(parameters)
        groups = [
            {"params": [p for p in every if p.ndim == 1], "lr": 0.01},
            {"params": [p for p in every if p.ndim == 4], "weight_decay": 0.1},
            {"params": [p for p in every if p.ndim == 2]},
        ]  # the scalar is in none, and not trained
        return torch.optim.SGD(groups, lr=0.1, momentum=0.9)

    assert_equal(train(Layers, make, workers=3), train_alone(Layers, make))


def test_parameters_of_several_dtypes_are_averaged():
    class Cast(nn.Module):
        def forward(self, values):
            return values.to(torch.float32 if values.dtype == torch.float64 else torch.float64)

    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(
                nn.Flatten(), nn.Linear(27, 5), Cast(), nn.Linear(5, 9), Cast()
            )

        def double(self):  # all but one layer
            self.layers[1].double()
            return self

        def forward(self, pictures):
            return self.layers(pictures).mean(1, keepdim=True)

    # A chunk of this size would begin in one dtype and end in the other.
    ours = train(Mixed, momentum_sgd, workers=3, chunk_bytes=3 * CACHE_LINE)
    alone = train_alone(Mixed, momentum_sgd)
    torch.testing.assert_close(ours, alone, rtol=1e-5, atol=1e-6)
    assert {value.dtype for value in ours.values()} == {torch.float32, torch.float64}


SCHEDULES = {
    "StepLR": partial(lr_scheduler.StepLR, step_size=2, gamma=0.5),
    "LambdaLR": partial(lr_scheduler.LambdaLR, lr_lambda=lambda step: 1 / (1 + step)),
    "OneCycleLR": partial(lr_scheduler.OneCycleLR, max_lr=0.2, total_steps=STEPS + 1),
    "CyclicLR": partial(lr_scheduler.CyclicLR, base_lr=0.01, max_lr=0.2, step_size_up=2),
}


@pytest.mark.parametrize("make_schedule", SCHEDULES.values(), ids=SCHEDULES.keys())
@pytest.mark.parametrize("make", [momentum_sgd, ELEMENTWISE["AdamW"]], ids=["SGD", "AdamW"])
def test_a_schedule_changes_rate_and_momentum_as_in_one_process(make, make_schedule):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ours = train(Layers, make, make_schedule=make_schedule)
    assert_equal(ours, train_alone(Layers, make, make_schedule=make_schedule))


def test_more_workers_than_memory_to_part_are_no_fault_and_no_warning():
    def make_model() -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(27, 1, bias=False), nn.Linear(1, 1))

    schedule = SCHEDULES["StepLR"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ours = train(make_model, momentum_sgd, workers=9, make_schedule=schedule)
    assert_equal(ours, train_alone(make_model, momentum_sgd, make_schedule=schedule))


def test_between_steps_the_groups_of_all_workers_hold_every_element():
    optimizers: dict[int, torch.optim.Optimizer] = {}
    ours = train(Layers, momentum_sgd, workers=3, watch=optimizers.__setitem__)
    pieces = [p for o in optimizers.values() for group in o.param_groups for p in group["params"]]
    trained = [value for name, value in ours.items() if name != "frozen"]
    assert sum(p.numel() for p in pieces) == sum(value.numel() for value in trained)
    assert len(pieces) > len(trained)
    assert all(p.grad is None for p in pieces)
    assert set(optimizers[0].state) == set(optimizers[0].param_groups[0]["params"])


def test_a_hook_sees_one_step_with_every_gradient_of_its_part():
    seen: list[tuple[int, int]] = []

    def watch(rank: int, optimizer: torch.optim.Optimizer) -> None:
        whole = len(optimizer.param_groups[0]["params"])

        def hook(optimizer, args, kwargs):
            gradients = [p.grad for group in optimizer.param_groups for p in group["params"]]
            assert all(gradient is not None for gradient in gradients)
            seen.append((whole, len(gradients)))

        optimizer.register_step_pre_hook(hook)

    ours = train(Layers, momentum_sgd, watch=watch)
    assert_equal(ours, train_alone(Layers, momentum_sgd))
    assert len(seen) == 2 * STEPS
    assert all(whole == gradients for whole, gradients in seen)


@pytest.mark.parametrize("max_norm", [None, 0.1])
@pytest.mark.parametrize("workers", [1, 3, 9])
def test_an_optimizer_that_is_not_elementwise_gets_whole_tensors(workers, max_norm):
    def make(parameters):
        every = list(parameters)
        return NormalisedSgd([{"params": every[:2]}, {"params": every[2:], "lr": 0.01}], lr=0.1)

    ours = train(Layers, make, workers=workers, max_norm=max_norm)
    assert_equal(ours, train_alone(Layers, make, max_norm=max_norm))
