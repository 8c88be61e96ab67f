"""Four samples are all that the loss of a slow model is checked with: they are chosen to differ."""

from __future__ import annotations

import pytest
import tiny_cases
import torch
from described_cases import described, refusal
from torch import nn
from torch.nn import functional

from launch.description import extreme_samples, loss_check
from launch.description.extreme_samples import find_extreme_samples
from launch.description.loss_check import check_loss
from launch.use_cases._adapter import adapt_use_case
from launch.use_cases._base import UseCase


@pytest.fixture(autouse=True)
def _slow(monkeypatch):
    """Let every model take long, and all samples be read, however busy the machine is."""
    monkeypatch.setattr(loss_check, "_LONG_S", 0.0)
    monkeypatch.setattr(extreme_samples, "_LONGEST_S", 60.0)


class Labelled(tiny_cases.Pictures):
    """Pictures with labels by their numbers."""

    def __init__(self, label) -> None:
        super().__init__(160)
        self._label = label

    def __getitem__(self, index: int):
        return super().__getitem__(index)[0], self._label(index)


class RareClass(tiny_cases.ClassWeights):
    """Sorted by class, as folders of pictures are; the second one is rare."""

    weight = UseCase.weight

    def dataset(self, data, *, train: bool):
        return Labelled(lambda index: int(index >= 150))


class AlikeHalves(RareClass):
    """Of four samples from all over the data set, each half has one of either class."""

    def dataset(self, data, *, train: bool):
        return Labelled(lambda index: index // 40 % 2)


class NumberedRareClass(RareClass):
    """Its samples say after the label which they are."""

    def dataset(self, data, *, train: bool):
        return Labelled(lambda index: {"class": int(index == 77), "number": index})

    def loss(self, output, target):
        return super().loss(output, target["class"])


class RarelyIgnored(tiny_cases.Sgd):
    """A single label is ignored."""

    ignored = -100

    def dataset(self, data, *, train: bool):
        return Labelled(lambda index: self.ignored if index == 77 else index % 3)

    def loss(self, output, target):
        return functional.cross_entropy(output, target, ignore_index=self.ignored)


class RarelyIgnoredGreatest(RarelyIgnored):
    ignored = 255


class OneShortText(tiny_cases.TokenMean):
    """All texts are of one length, apart from one."""

    weight = UseCase.weight

    def dataset(self, data, *, train: bool):
        def text(index: int) -> torch.Tensor:
            generator = torch.Generator().manual_seed(index)
            return torch.randint(1, 11, (2 if index == 77 else 9,), generator=generator)

        return [text(index) for index in range(160)]


class OneShortTextOfDicts(OneShortText):
    """Each batch is padded to its longest text, by a collation of its own."""

    def collate(self, samples):
        return {"tokens": nn.utils.rnn.pad_sequence(list(samples), batch_first=True)}

    def step(self, model, batch):
        return self.loss(model(batch["tokens"]), batch["tokens"] * 7 % 11)


class MostlyUnlabelled(tiny_cases.Sgd):
    """Batches with extreme samples have a half without a label, of which there is no mean."""

    def dataset(self, data, *, train: bool):
        return Labelled(lambda index: -100 if index % 40 else 1)

    def loss(self, output, target):
        return functional.cross_entropy(output, target) * len(output)


@pytest.mark.parametrize(
    "case",
    [
        RareClass,
        AlikeHalves,
        NumberedRareClass,
        RarelyIgnored,
        RarelyIgnoredGreatest,
        OneShortText,
        OneShortTextOfDicts,
        MostlyUnlabelled,
    ],
)
def test_four_samples_show_that_a_loss_does_not_add_up(case):
    """Four from all over the data set had one class where the other is rare, and no label that is
    ignored: such losses passed."""
    assert "and the mean of its halves' is" in refusal(case)


class SaidRareClass(RareClass):
    weight = tiny_cases.ClassWeights.weight


class SaidRarelyIgnored(RarelyIgnored):
    def weight(self, batch):
        return (batch[1] != self.ignored).sum()


class SaidShortText(OneShortText):
    weight = tiny_cases.TokenMean.weight


@pytest.mark.parametrize(
    "case",
    [
        SaidRareClass,
        SaidRarelyIgnored,
        SaidShortText,
        tiny_cases.IgnoredLabels,
        tiny_cases.NoLabels,
        tiny_cases.PaddedText,
        tiny_cases.NestedTargets,
        tiny_cases.Normed,
        tiny_cases.NotANumber,
        tiny_cases.Random,
    ],
)
def test_four_samples_refuse_no_loss_that_adds_up(case):
    assert described(case)


def test_one_batch_of_four_samples_and_its_halves_are_all_that_is_computed():
    sizes = []

    class Noting(tiny_cases.Sgd):
        def step(self, model, batch):
            sizes.append(len(batch[0]))
            return super().step(model, batch)

    case = adapt_use_case(Noting(), "tiny")
    check_loss(case, case.model(), case.dataset(None, train=True), "tiny")
    assert sizes == [2, 4, 2, 2]


class MaskedTexts(tiny_cases.Sgd):
    """Texts of different length, with a mask and with labels of their own."""

    def dataset(self, data, *, train: bool):
        def text(number: int) -> dict[str, torch.Tensor]:
            ones = torch.ones(2 + (number + 3) % 8, dtype=torch.int64)
            return {"tokens": ones, "mask": ones, "labels": number * ones}

        return [text(number) for number in range(160)]


def test_what_differs_in_the_length_of_texts_alone_leaves_a_batch_for_their_labels():
    """Tokens, mask and labels of the shortest and the longest text were three batches, the same."""
    case = MaskedTexts()
    found = find_extreme_samples(case, case.dataset(None, train=True))
    assert len(set(found)) == len(found)
    compared = found[: loss_check._UNLIKE_BATCHES]
    assert (0, 159) in [(one.least, one.greatest) for one in compared]
