"""What workers keep, put together again for other workers: any optimizer, any number of pieces."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import BrokenBarrierError

import pytest
import torch
from averaging_cases import (
    CACHE_LINE,
    ELEMENTWISE,
    SAMPLES,
    STEPS,
    Layers,
    SometimesUnused,
    batches,
    fresh,
    momentum_sgd,
)
from averaging_cases import NormalisedSgd as WholeTensors
from torch import nn
from torch.optim import lr_scheduler

from launch.checkpoints.checkpoint import Checkpoint
from launch.checkpoints.folder import find_latest
from launch.checkpoints.manifest import Manifest
from launch.checkpoints.restoring import restore
from launch.checkpoints.training_state import OptimizerParts, TrainingState
from launch.checkpoints.worker_part import make_part
from launch.checkpoints.writer import CheckpointWriter
from launch.errors import CheckpointError
from launch.local_group.group import LocalGroup, LocalThreadGroup
from launch.training.averaging.averaging import GradientAverager
from launch.training.averaging.optimizer import _start_momentum

HALF = STEPS // 2
MANIFEST = Manifest(
    use_case="tiny",
    step=HALF,
    epoch=0,
    position=HALF * SAMPLES,
    samples=STEPS * SAMPLES,
    seed=0,
    global_batch=SAMPLES,
    node_batches=(SAMPLES,),
)

Make = Callable[..., torch.optim.Optimizer]


class Worker:
    """Trains a model over threads, ``workers`` of them, or as a plain loop does where 0."""

    def __init__(
        self,
        model: nn.Module,
        make: Make,
        group: LocalGroup,
        workers: int,
        make_schedule: Callable | None,
        global_batch: int = SAMPLES,
    ) -> None:
        self.model, self.group, self.workers = model, group, workers
        self.global_batch = global_batch
        self.optimizer = make(model.parameters())
        if type(self.optimizer) is torch.optim.SGD and self.optimizer.defaults["fused"]:
            _start_momentum(self.optimizer)  # as `make_optimizer` does
        self.averager = (
            GradientAverager(model, self.optimizer, group, chunk_bytes=4 * CACHE_LINE)
            if workers
            else None
        )
        self.schedules = [make_schedule(self.optimizer)] if make_schedule else []

    def describe_state(self) -> TrainingState:
        first = self.group.local_rank == 0
        optimizer = (
            self.averager.describe_optimizer(self.model)
            if self.averager
            else OptimizerParts.of_parameters(self.optimizer, self.model)
        )
        weights = list(self.model.state_dict()) if first else []
        return TrainingState(models=[self.model], weights=weights, optimizers=[optimizer])

    def resume(self, path: Path) -> None:
        with Checkpoint(path) as checkpoint:
            restore(
                self.describe_state(), self.schedules, checkpoint, global_batch=self.global_batch
            )
        self.group.barrier()

    def save(self, folder: Path, manifest: Manifest) -> None:
        writer = CheckpointWriter(folder, self.group)
        writer.save(partial(make_part, self.describe_state(), self.schedules), manifest)
        writer.close()

    def train(self, some: Sequence) -> None:
        own = slice(self.group.local_rank, None, self.group.size)
        for inputs, targets in some:
            if self.averager:
                self.averager.start_step()
            else:
                self.optimizer.zero_grad()
            loss = ((self.model(inputs[own]) - targets[own]) ** 2).sum() / SAMPLES
            loss.backward()
            if self.averager:
                self.averager.step(loss.item())
            else:
                self.optimizer.step()
            for schedule in self.schedules:
                schedule.step()


def train(
    make_model: Callable[[], nn.Module],
    make: Make,
    some: Sequence,
    *,
    workers: int,
    make_schedule: Callable | None = None,
    resume: Path | None = None,
    save: Path | None = None,
    manifest: Manifest = MANIFEST,
    global_batch: int = SAMPLES,
    skipped: int = 0,
) -> dict[str, torch.Tensor]:
    members = LocalThreadGroup.create([()] * max(1, workers))
    models = [fresh(make_model) for _ in members]
    for model in models:
        model.calls = skipped  # of `SometimesUnused`, which goes by the number of the step

    def work(rank: int) -> None:
        try:
            worker = Worker(models[rank], make, members[rank], workers, make_schedule, global_batch)
            if resume:
                worker.resume(resume)
            worker.train(some)
            if save:
                worker.save(save, manifest)
        except BaseException:
            members[0].abort()
            raise

    with warnings.catch_warnings(), ThreadPoolExecutor(len(members)) as pool:
        warnings.simplefilter("error")
        ended = [pool.submit(work, rank) for rank in range(len(members))]
    # Last what is only the others' failure, felt at a barrier.
    errors = filter(None, [done.exception() for done in ended])
    for error in sorted(errors, key=lambda error: isinstance(error, BrokenBarrierError)):
        raise error
    return models[-1].state_dict()


def in_two_runs(make_model, make, folder, *, writers: int, readers: int, **more):
    train(make_model, make, batches()[:HALF], workers=writers, save=folder, **more)
    path = find_latest(folder).path
    rest = batches()[HALF:]
    return train(make_model, make, rest, workers=readers, resume=path, skipped=HALF, **more)


LAYOUTS = [(0, 2), (3, 0), (2, 3)]


@pytest.mark.parametrize(
    ("make", "writers", "readers"),
    [*((make, 2, 3) for make in ELEMENTWISE.values()), (momentum_sgd, 0, 2), (momentum_sgd, 3, 0)],
    ids=[*ELEMENTWISE, "after one process", "in one process"],
)
def test_another_number_of_workers_goes_on(make, writers, readers, tmp_path):
    whole = train(Layers, make, batches(), workers=readers)
    parts = in_two_runs(Layers, make, tmp_path, writers=writers, readers=readers)
    torch.testing.assert_close(parts, whole, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("make", ELEMENTWISE.values(), ids=ELEMENTWISE.keys())
def test_the_same_workers_go_on_to_the_last_bit(make, workers, tmp_path):
    whole = train(Layers, make, batches(), workers=workers)
    parts = in_two_runs(Layers, make, tmp_path, writers=workers, readers=workers)
    torch.testing.assert_close(parts, whole, rtol=0, atol=0)


FORMS = {
    "plain to fused": (momentum_sgd, ELEMENTWISE["SGD fused"]),
    "fused to plain": (ELEMENTWISE["SGD fused"], momentum_sgd),
    "Adam to fused": (partial(torch.optim.Adam, lr=0.01), ELEMENTWISE["Adam fused"]),
    "fused to Adam": (ELEMENTWISE["Adam fused"], partial(torch.optim.Adam, lr=0.01)),
    "Adagrad to fused": (partial(torch.optim.Adagrad, lr=0.1), ELEMENTWISE["Adagrad fused"]),
}


@pytest.mark.parametrize(("writers", "readers"), [(0, 2), (2, 0)])
@pytest.mark.parametrize(("before", "after"), FORMS.values(), ids=FORMS.keys())
@pytest.mark.parametrize("model", [Layers, SometimesUnused])
def test_an_optimizer_goes_on_in_another_form(model, before, after, writers, readers, tmp_path):
    """A parameter that had no gradient yet has a momentum in one form, and none in the other."""
    whole = train(model, before, batches(), workers=readers)
    train(model, before, batches()[:HALF], workers=writers, save=tmp_path)
    path = find_latest(tmp_path).path
    rest = batches()[HALF:]
    parts = train(model, after, rest, workers=readers, resume=path, skipped=HALF)
    torch.testing.assert_close(parts, whole, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(("writers", "readers"), LAYOUTS)
def test_groups_keep_their_settings(writers, readers, tmp_path):
    def make(parameters, lr=0.1):
        every = list(parameters)
        groups = [
            {"params": [p for p in every if p.ndim == 1], "lr": lr / 10},
            {"params": [p for p in every if p.ndim == 4], "weight_decay": 0.1},
            {"params": [p for p in every if p.ndim == 2]},
        ]  # the scalar is in none, and not trained
        return torch.optim.SGD(groups, lr=lr, momentum=0.9)

    whole = train(Layers, make, batches(), workers=readers)
    train(Layers, make, batches()[:HALF], workers=writers, save=tmp_path)
    other_rate = partial(make, lr=7.0)  # the checkpoint's counts
    rest, path = batches()[HALF:], find_latest(tmp_path).path
    parts = train(Layers, other_rate, rest, workers=readers, resume=path)
    torch.testing.assert_close(parts, whole, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(("writers", "readers"), LAYOUTS)
def test_an_optimizer_that_wants_whole_tensors_goes_on(writers, readers, tmp_path):
    def make(parameters):
        every = list(parameters)
        groups = [{"params": every[:2]}, {"params": every[2:], "lr": 0.01}]
        return WholeTensorsWithState(groups, lr=0.1)

    whole = train(Layers, make, batches(), workers=readers)
    parts = in_two_runs(Layers, make, tmp_path, writers=writers, readers=readers)
    torch.testing.assert_close(parts, whole, rtol=1e-9, atol=1e-11)


class WholeTensorsWithState(WholeTensors):
    """Keeps states of other shapes than the parameter's, and things that are no tensors."""

    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None or not parameter.numel():
                    continue
                state = self.state[parameter]
                rows = parameter.grad.square().flatten(1).mean(1) if parameter.ndim > 1 else None
                state["rows"] = state.get("rows", 0) + rows if rows is not None else None
                state["seen"] = [*state.get("seen", []), (group["lr"], {"at": rows})]
                parameter.grad.mul_(len(state["seen"]))
        super().step(closure)


SCHEDULES = {
    "StepLR": partial(lr_scheduler.StepLR, step_size=2, gamma=0.5),
    "MultiStepLR": partial(lr_scheduler.MultiStepLR, milestones=[2, 4]),
    "LambdaLR": partial(lr_scheduler.LambdaLR, lr_lambda=lambda step: 1 / (1 + step)),
    "MultiplicativeLR": partial(lr_scheduler.MultiplicativeLR, lr_lambda=lambda step: 0.9),
    "CosineAnnealingLR": partial(lr_scheduler.CosineAnnealingLR, T_max=STEPS),
    "WarmRestarts": partial(lr_scheduler.CosineAnnealingWarmRestarts, T_0=4),
    "OneCycleLR": partial(lr_scheduler.OneCycleLR, max_lr=0.2, total_steps=STEPS + 1),
    "CyclicLR": partial(lr_scheduler.CyclicLR, base_lr=0.01, max_lr=0.2, step_size_up=2),
    "SequentialLR": lambda optimizer: lr_scheduler.SequentialLR(
        optimizer,
        [
            lr_scheduler.ConstantLR(optimizer, factor=0.1, total_iters=2),
            lr_scheduler.MultiStepLR(optimizer, milestones=[2]),
        ],
        milestones=[2],
    ),
    "ChainedScheduler": lambda optimizer: lr_scheduler.ChainedScheduler(
        [
            lr_scheduler.LinearLR(optimizer, total_iters=4),
            lr_scheduler.ExponentialLR(optimizer, gamma=0.9),
        ],
        optimizer=optimizer,
    ),
}


@pytest.mark.parametrize("make_schedule", SCHEDULES.values(), ids=SCHEDULES.keys())
def test_a_schedule_goes_on(make_schedule, tmp_path):
    more = {"make_schedule": make_schedule}
    whole = train(Layers, momentum_sgd, batches(), workers=3, **more)
    parts = in_two_runs(Layers, momentum_sgd, tmp_path, writers=2, readers=3, **more)
    torch.testing.assert_close(parts, whole, rtol=1e-9, atol=1e-11)


def test_a_schedule_goes_on_from_where_other_batches_would_have_brought_it(tmp_path):
    rates = []

    def make_schedule(optimizer):
        rates.append(optimizer.param_groups[0])
        return lr_scheduler.OneCycleLR(optimizer, max_lr=0.2, total_steps=2 * STEPS + 1)

    more = {"make_schedule": make_schedule, "workers": 0}
    train(Layers, momentum_sgd, batches(), **more)
    expected = (rates[-1]["lr"], rates[-1]["momentum"])
    train(Layers, momentum_sgd, batches()[:HALF], save=tmp_path, **more)
    path = find_latest(tmp_path).path
    # Three steps of the double size were made: six of this one.
    half = SAMPLES // 2
    manifest = replace(MANIFEST, position=HALF * SAMPLES)
    assert manifest.steps_of(half) == 2 * HALF
    train(Layers, momentum_sgd, [], resume=path, global_batch=half, **more)
    assert (rates[-1]["lr"], rates[-1]["momentum"]) == pytest.approx(expected)


@pytest.mark.parametrize(("global_batch", "rate"), [(SAMPLES, 0.1), (SAMPLES // 2, 0.05)])
def test_a_rate_without_schedule_is_that_of_the_batch_that_goes_on(global_batch, rate, tmp_path):
    """The story: with `--lr-scaling linear` and another `--global-batch`, the rate stayed that of
    the old batch."""
    train(Layers, momentum_sgd, batches()[:1], workers=0, save=tmp_path)
    path, made = find_latest(tmp_path).path, []

    def make_scaled(parameters):
        made.append(torch.optim.SGD(parameters, lr=0.05, momentum=0.9))
        return made[-1]

    train(Layers, make_scaled, [], workers=0, resume=path, global_batch=global_batch)
    assert made[-1].param_groups[0]["lr"] == rate


class UnwritableSchedule(lr_scheduler.StepLR):
    def __init__(self, optimizer):
        self.rule = lambda rate: rate / 2
        super().__init__(optimizer, 2)


def refused(make: Make, make_schedule=None, model=Layers) -> str:
    (member,) = LocalThreadGroup.create([()])
    worker = Worker(fresh(model), make, member, 0, make_schedule)
    with pytest.raises(CheckpointError) as caught:
        make_part(worker.describe_state(), worker.schedules)
    return str(caught.value)


def test_a_schedule_that_json_cannot_hold_is_refused_before_the_first_step():
    message = refused(momentum_sgd, UnwritableSchedule)
    assert message.startswith("schedule UnwritableSchedule['rule'] is a function, ")
    assert "leave --checkpoint out" in message


def test_an_optimizer_with_a_state_of_its_own_is_refused_before_the_first_step():
    class Wrapped(torch.optim.SGD):
        def state_dict(self):
            return {"mine": super().state_dict()}

    assert refused(partial(Wrapped, lr=0.1)).startswith("optimizer Wrapped has a state_dict() ")


def test_the_checkpoint_of_another_optimizer_is_refused(tmp_path):
    train(Layers, momentum_sgd, batches()[:1], workers=2, save=tmp_path)
    with pytest.raises(CheckpointError, match=r"is one of SGD and the use case makes Adam: use"):
        train(Layers, ELEMENTWISE["Adam"], [], workers=2, resume=find_latest(tmp_path).path)


def test_the_checkpoint_of_another_model_is_refused(tmp_path):
    train(Layers, momentum_sgd, batches()[:1], workers=2, save=tmp_path)
    with pytest.raises(CheckpointError, match=r"is one of another model \(.*side\.weight"):
        train(SometimesUnused, momentum_sgd, [], workers=0, resume=find_latest(tmp_path).path)
