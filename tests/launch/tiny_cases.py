"""Use cases small enough to train for twenty steps in a blink, and ways to fail."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import numpy
import torch
import torchvision
from torch import nn
from torch.nn import functional

from launch.errors import UseCaseError
from launch.use_cases._base import UseCase


class Pictures(torch.utils.data.Dataset):
    """Random pictures, each the same whoever asks for it."""

    def __init__(self, size: int, side: int = 8) -> None:
        self._size = size
        self._side = side

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int):
        generator = torch.Generator().manual_seed(index)
        return torch.randn(3, self._side, self._side, generator=generator), index % 3


class Sgd(UseCase):
    """A small convolutional network without anything random in its step."""

    name = "tiny"
    default_batch = 8

    def model(self):
        return nn.Sequential(
            nn.Conv2d(3, 6, 3),
            nn.ReLU(),
            nn.Conv2d(6, 8, 3),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(128, 16),
            nn.ReLU(),
            nn.Linear(16, 3),
        )

    def dataset(self, data, *, train: bool):
        return Pictures(160 if train else 10)

    def loss(self, output, target):
        return functional.cross_entropy(output, target)

    def optimizer(self, parameters):
        return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)

    def metrics(self, output, target):
        return {"accuracy": (output.argmax(1) == target).float().mean().item()}


class NoData(Sgd):
    """Waits for a server that never answers."""

    def dataset(self, data, *, train: bool):
        return time.sleep(600)


class FaultyOnSecond(Sgd):
    """On the second rank of `rank_apart` at fault once the first one is there, which waits."""

    def dataset(self, data, *, train: bool):
        if Path.cwd().name == "rank0":
            time.sleep(600)
        while not list(Path("../rank0").glob("runs/1/*.log")):
            time.sleep(0.05)
        raise UseCaseError("the data are of another kind")


class OtherData(Sgd):
    """Each rank of `rank_apart` finds other data."""

    def dataset(self, data, *, train: bool):
        return Pictures(160 - 8 * _rank() if train else 10)


class OtherWidth(Sgd):
    """Each rank builds another model, of as many layers."""

    def model(self):
        layers = super().model()
        layers[-1] = nn.Linear(16, 3 + _rank())
        return layers


def _rank() -> int:
    return int(Path.cwd().name.removeprefix("rank"))


class Decodable(torch.utils.data.Dataset):
    """Pictures that may be decoded once, mirrored at random: see launch/data/pictures.py."""

    def __init__(self, size: int, name: str) -> None:
        self._size = size
        self._name = name

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int):
        pixels = torch.from_numpy(self.pixels(index)).permute(2, 0, 1)[None]
        return self.finish(pixels, self.draw(1))[0], self.target(index)

    def pixels_name(self) -> str:
        return self._name

    def pixels_key(self) -> str:
        return "1"

    def pixel_shape(self):
        return 8, 8, 3

    def pixels(self, index: int):
        return numpy.random.default_rng(index).integers(0, 256, (8, 8, 3), dtype=numpy.uint8)

    def target(self, index: int) -> int:
        return index % 3

    def draw(self, count: int):
        return torch.rand(count) < 0.5

    def finish(self, pixels, drawn):
        mirrored = drawn.view(-1, 1, 1, 1)
        return torch.where(mirrored, pixels.flip(3), pixels) / 255 - 0.5


class Decoded(Sgd):
    def dataset(self, data, *, train: bool):
        size = 45 if train else 10
        return Decodable(size, f"tiny {size}")


class DecodedInTraining(Decoded):
    """Only the training samples can be decoded once."""

    def dataset(self, data, *, train: bool):
        return super().dataset(data, train=True) if train else Pictures(10)


class Undecodable(Decoded):
    """A sample cannot be decoded."""

    def dataset(self, data, *, train: bool):
        dataset = Decodable(45 if train else 10, "of its own: the cache must not have them")
        dataset.pixels = self.fail
        return dataset

    def fail(self, index: int):
        raise OSError(f"sample {index} is gone")


class Gradient(Sgd):
    """One step at rate 1 moves the weights by exactly their gradient."""

    def dataset(self, data, *, train: bool):
        return Pictures(16 if train else 3)

    def optimizer(self, parameters):
        return torch.optim.SGD(parameters, lr=1.0)


class AlexNet(Gradient):
    """The real thing, without its dropout."""

    def model(self):
        return torchvision.models.alexnet(num_classes=3, dropout=0.0)

    def dataset(self, data, *, train: bool):
        return Pictures(8 if train else 1, 224)

    def layers(self, model):
        parts = (*model.features, model.avgpool, nn.Flatten(1), *model.classifier)
        return nn.Sequential(*parts)


class SlowInChannelsLast(Sgd):
    """Takes longer where pictures come in another order of memory: one node of a job is slow."""

    def loss(self, output, target):
        time.sleep(len(output) * 0.0005)
        return super().loss(output, target)

    def model(self):
        model = super().model()
        model[0].register_forward_pre_hook(_sleep_in_channels_last)
        return model


def _sleep_in_channels_last(_, inputs):
    (pictures,) = inputs
    if pictures.is_contiguous(memory_format=torch.channels_last):
        time.sleep(len(pictures) * 0.002)


class AdamW(Sgd):
    def optimizer(self, parameters):
        return torch.optim.AdamW(parameters, lr=0.002)


class Adagrad(Sgd):
    """An optimizer that makes its state before the first step."""

    def optimizer(self, parameters):
        return torch.optim.Adagrad(parameters, lr=0.01)


class Groups(Sgd):
    """Two parameter groups with settings of their own."""

    def optimizer(self, parameters):
        every = list(parameters)
        biases = [p for p in every if p.ndim == 1]
        weights = [p for p in every if p.ndim > 1]
        groups = [
            {"params": biases, "weight_decay": 0.0, "lr": 0.01},
            {"params": weights, "weight_decay": 0.1},
        ]
        return torch.optim.SGD(groups, lr=0.05, momentum=0.9)


class Clipped(Sgd):
    """Every step's gradient is longer than this."""

    max_gradient_norm = 0.05


class ClippedGroups(Groups):
    """The norm is that of all groups together, and here not every step's gradient exceeds it."""

    max_gradient_norm = 0.2


class ClippedWholeTensors(Sgd):
    max_gradient_norm = 0.05

    def optimizer(self, parameters):
        return SteepSgd(parameters, lr=5.0)


class Scheduled(AdamW):
    """Its rate changes with every step."""

    max_gradient_norm = 0.25

    def schedule(self, optimizer, steps_per_epoch):
        return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps_per_epoch)


class OneCycle(Groups):
    """A schedule that changes the momentum too, of each group from its own rate."""

    def schedule(self, optimizer, steps_per_epoch):
        return torch.optim.lr_scheduler.OneCycleLR(
            optimizer, max_lr=[0.05, 0.1], total_steps=2 * steps_per_epoch + 1
        )


class NormalisedSgd(torch.optim.Optimizer):
    """Not elementwise: each tensor's step depends on the norm of its whole gradient."""

    def __init__(self, parameters, lr: float) -> None:
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    norm = parameter.grad.norm() + 1e-6
                    parameter.sub_(parameter.grad / norm, alpha=group["lr"])


class SteepSgd(torch.optim.SGD):
    """A subclass, of which nobody knows whether it is elementwise; not linear in the gradient."""

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.sub_(parameter.grad * parameter.grad.norm(), alpha=group["lr"])


class WholeTensors(Sgd):
    def optimizer(self, parameters):
        return NormalisedSgd(parameters, lr=0.05)


class TiedModel(nn.Module):
    """Two layers with one weight, a frozen layer, and a layer that no step uses."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(192, 16)
        self.second = nn.Linear(16, 16, bias=False)
        self.third = nn.Linear(16, 16)
        self.third.weight = self.second.weight
        self.frozen = nn.Linear(16, 16).requires_grad_(False)
        self.unused = nn.Linear(4, 4)
        self.last = nn.Linear(16, 3)

    def forward(self, pictures):
        hidden = torch.tanh(self.first(pictures.flatten(1)))
        hidden = torch.tanh(self.third(torch.tanh(self.second(hidden))))
        return self.last(torch.tanh(self.frozen(hidden)))


class Tied(Sgd):
    def model(self):
        return TiedModel()

    def layers(self, model):
        parts = (model.first, model.second, model.third, model.frozen)
        pairs = [layer for part in parts for layer in (part, nn.Tanh())]
        return nn.Sequential(nn.Flatten(), *pairs, model.last)


class Levels(nn.Module):
    """Rounds every value to one of eight levels."""

    def forward(self, pictures):
        return (pictures.flatten(1) * 2).round().clamp(-4, 3).long() + 4


class Sparse(Sgd):
    """An embedding with a sparse gradient."""

    def model(self):
        return nn.Sequential(
            Levels(), nn.Embedding(8, 4, sparse=True), nn.Flatten(), nn.Linear(768, 3)
        )


class SparseRows(Sparse):
    """An optimizer that takes sparse gradients and no others."""

    def model(self):
        return nn.Sequential(Levels(), nn.EmbeddingBag(8, 3, mode="mean", sparse=True))

    def optimizer(self, parameters):
        return torch.optim.SparseAdam(parameters, lr=0.01)


class Uneven(Sgd):
    """The last batch leaves one worker without a sample."""

    def dataset(self, data, *, train: bool):
        return Pictures(17 if train else 1)


class Rests(Sgd):
    """Of batches of 16 an epoch has one, and a rest in which the first of two nodes has none."""

    def dataset(self, data, *, train: bool):
        return Pictures(19 if train else 1)


class Normed(Sgd):
    """Keeps running statistics, each worker of its own share."""

    def model(self):
        return nn.Sequential(
            nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Linear(216, 3)
        )


class NormedRest(Normed):
    """Its last batch holds three samples, and each channel one value a sample."""

    def model(self):
        return nn.Sequential(nn.Flatten(), nn.Linear(192, 6), nn.BatchNorm1d(6), nn.Linear(6, 3))

    def dataset(self, data, *, train: bool):
        return Pictures(19 if train else 10)


class Raises(Sgd):
    def loss(self, output, target):
        raise ArithmeticError("the loss is beyond me")


class Leaves(Sgd):
    def loss(self, output, target):
        os._exit(3)


class LeavesQuietly(Sgd):
    """Ends the process that has the first of the cores as if all were well."""

    def loss(self, output, target):
        if min(os.sched_getaffinity(os.getppid())) in os.sched_getaffinity(0):
            os._exit(0)
        return super().loss(output, target)


class Dies(Sgd):
    """Killed in the third step, as the kernel does when memory is short."""

    steps = 0

    def loss(self, output, target):
        self.steps += 1
        if self.steps == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().loss(output, target)


class Hangs(Sgd):
    def loss(self, output, target):
        time.sleep(3600)


class NotANumber(Sgd):
    def loss(self, output, target):
        return super().loss(output, target) * float("nan")


class Diverges(Sgd):
    """Is not a number from the 13th step on."""

    steps = 0

    def loss(self, output, target):
        self.steps += torch.is_grad_enabled()
        return super().loss(output, target) * (float("nan") if self.steps > 12 else 1)


class GradientDiverges(Sgd):
    """Has a loss in its fifth step as in others, and no gradient that is a number."""

    steps = 0

    def loss(self, output, target):
        if torch.is_grad_enabled():
            self.steps += 1
            if self.steps == 5:
                output.register_hook(lambda gradient: gradient * float("nan"))
        return super().loss(output, target)


class _LastUpdateFails(torch.optim.SGD):
    """Makes infinite parameters in the last of twenty steps, whose loss is a number."""

    steps = 0

    def step(self, closure=None):
        super().step(closure)
        self.steps += 1
        if self.steps == 20:
            self.param_groups[0]["params"][0].data.fill_(float("inf"))


class DivergesAtLast(Sgd):
    """The same after the last step, with nothing to validate."""

    def dataset(self, data, *, train: bool):
        return Pictures(160 if train else 0)

    def optimizer(self, parameters):
        return _LastUpdateFails(parameters, lr=0.05)


class DivergesInValidation(Sgd):
    """Cannot be validated on a single sample, which one of two workers has left."""

    def loss(self, output, target):
        loss = super().loss(output, target)
        return loss if torch.is_grad_enabled() or len(output) > 1 else loss * float("inf")

    def dataset(self, data, *, train: bool):
        return Pictures(160 if train else 9)


class Worsens(Sgd):
    """Its second validation is the best of four, each of which has two batches."""

    batches = 0

    def loss(self, output, target):
        loss = super().loss(output, target)
        if torch.is_grad_enabled():
            return loss
        self.batches += 1
        return loss * 0 + abs((self.batches + 1) // 2 - 2)


class Counted(nn.Linear):
    """Counts its calls, in state that is no tensor."""

    calls = 0

    def forward(self, values):
        self.calls += self.training
        return super().forward(values)

    def get_extra_state(self):
        return {"calls": self.calls}

    def set_extra_state(self, state):
        self.calls = state["calls"]


class Counts(Sgd):
    def model(self):
        return nn.Sequential(nn.Flatten(), Counted(192, 3))


class Unsaveable(Counts):
    def model(self):
        model = super().model()
        model[1].calls = object()
        return model


class TooLarge(Sgd):
    def loss(self, output, target):
        return super().loss(output, target) + torch.empty(1 << 60, dtype=torch.uint8).sum()


class KeepsChild(Sgd):
    """Trains on, beside a process that it has started."""

    child = 0

    def loss(self, output, target):
        if not self.child:
            self.child = os.fork()
            if not self.child:
                time.sleep(3600)
        return super().loss(output, target)


class LeavesChild(Sgd):
    """Starts a process that would outlive it."""

    def loss(self, output, target):
        if os.fork() == 0:
            time.sleep(3600)
        raise ArithmeticError("and there is a child")


class DecayedRest(Tied):
    """Weights that no gradient reaches stay, which decay would change; its last batch is one."""

    def dataset(self, data, *, train: bool):
        return Pictures(17 if train else 1)

    def optimizer(self, parameters):
        return torch.optim.AdamW(parameters, lr=0.002, weight_decay=0.5)


class Turns(nn.Module):
    """Two layers; a step uses the second one where it has as many samples as a full share."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(192, 3)
        self.second = nn.Linear(3, 3)

    def forward(self, pictures):
        hidden = self.first(pictures.flatten(1))
        return self.second(hidden) if len(pictures) >= 4 else hidden


class TakesTurns(Sgd):
    """Its last batch leaves a layer out, which its momentum would move on."""

    def model(self):
        return Turns()

    def dataset(self, data, *, train: bool):
        return Pictures(18 if train else 1)


FATEFUL = 86
"""A sample that comes in the middle of the first epoch, at seed 7 and batches of 8."""


class Numbered(Pictures):
    """Targets are a class and the number of the sample."""

    def __getitem__(self, index: int):
        picture, target = super().__getitem__(index)
        return picture, {"class": target, "number": index}


class NestedTargets(Sgd):
    def dataset(self, data, *, train: bool):
        return Numbered(160 if train else 10)

    def loss(self, output, target):
        return super().loss(output, target["class"])

    def metrics(self, output, target):
        return {}


class FailsOnce(NestedTargets):
    """The worker fails that judges one certain sample, while others wait for it."""

    def loss(self, output, target):
        if (target["number"] == FATEFUL).any():
            self.fail()
        return super().loss(output, target)


class RaisesOnce(FailsOnce):
    def fail(self):
        raise ArithmeticError("the loss is beyond me")


class ExitsOnce(FailsOnce):
    def fail(self):
        os._exit(3)


class DiesOnce(FailsOnce):
    def fail(self):
        os.kill(os.getpid(), signal.SIGKILL)


class Beyond(nn.Module):
    """Raises after some forward passes."""

    calls = 0

    def forward(self, hidden):
        self.calls += 1
        if self.calls > 40:
            raise ArithmeticError("the layer is beyond me")
        return hidden


class RaisesInLayer(Sgd):
    def model(self):
        return nn.Sequential(
            nn.Flatten(), Beyond(), nn.Linear(192, 16), nn.Tanh(), nn.Linear(16, 3)
        )


class NoLayers(Sgd):
    def layers(self, model):
        return None


class OpaqueTargets(Sgd):
    """Its targets are bytes, which the collation keeps."""

    def dataset(self, data, *, train: bool):
        return OpaquePictures(160 if train else 10)


class OpaquePictures(Pictures):
    def __getitem__(self, index: int):
        return super().__getitem__(index)[0], b"class"


@torch.library.custom_op("ddlplan_tests::unknown", mutates_args=())
def unknown(x: torch.Tensor) -> torch.Tensor:
    """An operator whose result nobody can tell the shape of."""
    return x.clone()


@unknown.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    raise RuntimeError("this operator has no kernel")


class CannotBeCompiled(Sgd):
    def model(self):
        class Unknown(nn.Module):
            def forward(self, pictures):
                return unknown(pictures)

        return nn.Sequential(Unknown(), super().model())


class LooksAtValues(Sgd):
    """Brings a value of each step from the device."""

    def loss(self, output, target):
        loss = super().loss(output, target)
        return loss if loss.item() < 1e9 else loss * 0


class DiesWhileBuilding(Sgd):
    """Kills the worker that has the first of the cores, before the first step."""

    def model(self):
        cores = os.sched_getaffinity(os.getppid())
        if min(cores) in os.sched_getaffinity(0):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().model()


class Shaken(Pictures):
    """Each sample is moved at random, by all the generators that there are."""

    def __getitem__(self, index: int):
        picture, target = super().__getitem__(index)
        return picture + torch.rand(1) + numpy.random.rand() + random.random(), target


class Random(Sgd):
    """Dropout, and samples that differ whenever they are read."""

    def model(self):
        return nn.Sequential(
            nn.Flatten(), nn.Linear(192, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 3)
        )

    def dataset(self, data, *, train: bool):
        return Shaken(160) if train else Pictures(10)


class SlowPictures(Pictures):
    """Pictures each of which takes a while to read."""

    def __getitem__(self, index: int):
        time.sleep(0.004)
        return super().__getitem__(index)


class SlowInput(Sgd):
    """Waits for its samples."""

    def dataset(self, data, *, train: bool):
        return SlowPictures(160 if train else 10)


class ClassWeights(Sgd):
    """A mean over the weights of the samples' classes."""

    def loss(self, output, target):
        return functional.cross_entropy(output, target, CLASS_WEIGHTS)

    def weight(self, batch):
        return CLASS_WEIGHTS[batch[1]].sum()


CLASS_WEIGHTS = torch.tensor([0.1, 1.0, 5.0])


class WeightedGradient(ClassWeights, Gradient):
    """The same, of which one step moves the weights by exactly their gradient."""


class SomeLabels(Pictures):
    """Most samples have no label."""

    def __getitem__(self, index: int):
        picture, target = super().__getitem__(index)
        return picture, target if index % 5 == 0 else -100


class IgnoredLabels(Sgd):
    """A mean over the labels that there are, which many a micro-batch lacks."""

    def dataset(self, data, *, train: bool):
        return SomeLabels(160 if train else 10)

    def loss(self, output, target):
        labelled = target != -100
        return functional.cross_entropy(output[labelled], target[labelled])  # of none, it is NaN

    def weight(self, batch):
        return (batch[1] != -100).sum()

    def metrics(self, output, target):
        return {}


class LabelGradient(IgnoredLabels, Gradient):
    """One step of fifteen of them moves the weights by exactly their gradient."""

    def dataset(self, data, *, train: bool):
        return SomeLabels(15 if train else 3)


class ClippedLabels(IgnoredLabels):
    max_gradient_norm = 0.2


class NoLabels(IgnoredLabels):
    """No sample has a label."""

    def dataset(self, data, *, train: bool):
        return Unlabelled(16 if train else 4)


class Unlabelled(Pictures):
    def __getitem__(self, index: int):
        return super().__getitem__(index)[0], -100


class Sentences(torch.utils.data.Dataset):
    """Texts of 2 to 9 tokens."""

    def __init__(self, size: int) -> None:
        self._size = size

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int):
        generator = torch.Generator().manual_seed(index)
        return torch.randint(1, 11, (2 + index * 5 % 8,), generator=generator)


class TokenMean(Sgd):
    """Padded text in pairs: a mean over the tokens that are no padding."""

    def model(self):
        return nn.Sequential(
            nn.Embedding(11, 8), nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 16), nn.Linear(16, 11)
        )

    def dataset(self, data, *, train: bool):
        return Sentences(160 if train else 10)

    def collate(self, samples):
        tokens = torch.zeros(len(samples), 9, dtype=torch.int64)
        for row, sample in zip(tokens, samples, strict=True):
            row[: len(sample)] = sample
        return tokens, tokens * 7 % 11

    def loss(self, output, target):
        return functional.cross_entropy(output.flatten(0, 1), target.flatten(), ignore_index=0)

    def weight(self, batch):
        return (batch[1] != 0).sum()

    def metrics(self, output, target):
        return {}


class PaddedText(TokenMean):
    """The same as dicts, each padded to its longest text, with a step of its own."""

    def collate(self, samples):
        tokens = nn.utils.rnn.pad_sequence(list(samples), batch_first=True)
        return {"tokens": tokens, "texts": [f"{len(sample)} tokens" for sample in samples]}

    def step(self, model, batch):
        tokens = batch["tokens"]
        assert len(tokens) == len(batch["texts"])
        return super().loss(model(tokens), tokens * 7 % 11)

    def weight(self, batch):
        return (batch["tokens"] != 0).sum()

    def metrics(self, output, batch):
        hits = output.argmax(2) == batch["tokens"] * 7 % 11
        return {"accuracy": hits.float().mean().item()}


class GlobalNormSgd(torch.optim.Optimizer):
    """A step's length depends on the gradients of all parameters."""

    def __init__(self, parameters, lr: float) -> None:
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        every = [p for group in self.param_groups for p in group["params"] if p.grad is not None]
        norm = torch.stack([parameter.grad.norm() for parameter in every]).norm()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.sub_(parameter.grad / norm, alpha=group["lr"])


class GlobalNorm(Sgd):
    def optimizer(self, parameters):
        return GlobalNormSgd(parameters, lr=0.05)


class WeightedGlobalNorm(ClassWeights, GlobalNorm):
    """Both."""


class LongSchedule(AdamW):
    """A schedule that must know how many epochs there are."""

    def schedule(self, optimizer, steps_per_epoch, epochs):
        return torch.optim.lr_scheduler.OneCycleLR(
            optimizer, max_lr=0.01, total_steps=steps_per_epoch * epochs + 1
        )
