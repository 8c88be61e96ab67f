"""Losses: means over weights, labels or tokens, values that are looked at, and a best one."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from tiny.base import Gradient, Pictures, Sgd
from tiny.optimizers import GlobalNorm


class ClassWeights(Sgd):
    """A mean over the weights of the samples' classes."""

    def loss(self, output, target):
        return functional.cross_entropy(output, target, CLASS_WEIGHTS)

    def weight(self, batch):
        return CLASS_WEIGHTS[batch[1]].sum()


CLASS_WEIGHTS = torch.tensor([0.1, 1.0, 5.0])


class WeightedGradient(ClassWeights, Gradient):
    """The same, of which one step moves the weights by exactly their gradient."""


class WeightedGlobalNorm(ClassWeights, GlobalNorm):
    """Both."""


class Third(Gradient):
    """Its loss is a third in float64, which float32 does not hold."""

    def loss(self, output, target):
        return output.double().sum() * 0 + 1 / 3


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


class LooksAtValues(Sgd):
    """Brings a value of each step from the device."""

    def loss(self, output, target):
        loss = super().loss(output, target)
        return loss if loss.item() < 1e9 else loss * 0


class Worsens(Sgd):
    """Its second validation is the best of four, each of which has two batches."""

    batches = 0

    def loss(self, output, target):
        loss = super().loss(output, target)
        if torch.is_grad_enabled():
            return loss
        self.batches += 1
        return loss * 0 + abs((self.batches + 1) // 2 - 2)
