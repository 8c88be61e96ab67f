"""A loss that gradients of parts would be wrong of is refused before anything is planned."""

from __future__ import annotations

import re
from contextlib import nullcontext

import pytest
import tiny_cases
import torch
from described_cases import described, refusal
from torch import nn
from torch.nn import functional

from launch.description import loss_check
from launch.description.loss_check import check_loss
from launch.errors import UseCaseError
from launch.use_cases._adapter import adapt_use_case

CASES = [
    tiny_cases.Sgd,
    tiny_cases.Normed,
    tiny_cases.NormedRest,
    tiny_cases.Random,
    tiny_cases.Sparse,
    tiny_cases.SparseRows,
    tiny_cases.NestedTargets,
    tiny_cases.NotANumber,
    tiny_cases.Decoded,
    tiny_cases.ClassWeights,
    tiny_cases.IgnoredLabels,
    tiny_cases.NoLabels,
    tiny_cases.TokenMean,
    tiny_cases.PaddedText,
]


class Sum(tiny_cases.Sgd):
    def loss(self, output, target):
        return functional.cross_entropy(output, target, reduction="sum")


class UnsaidClassWeights(tiny_cases.Sgd):
    def loss(self, output, target):
        return functional.cross_entropy(output, target, tiny_cases.CLASS_WEIGHTS)


class HalfLabelled(tiny_cases.SomeLabels):
    def __getitem__(self, index: int):
        picture, target = tiny_cases.Pictures.__getitem__(self, index)
        return picture, target if index % 3 else -100


class UnsaidIgnoredLabels(tiny_cases.Sgd):
    def dataset(self, data, *, train: bool):
        return HalfLabelled(160)

    def loss(self, output, target):
        return functional.cross_entropy(output, target, ignore_index=-100)


class RarelyUnlabelled(tiny_cases.Pictures):
    def __getitem__(self, index: int):
        picture, target = super().__getitem__(index)
        return picture, -100 if index in (77, 141) else target


class UnsaidRarelyIgnoredLabels(UnsaidIgnoredLabels):
    """Two labels of 160 are ignored: few batches have one."""

    def dataset(self, data, *, train: bool):
        return RarelyUnlabelled(160)


class SaidRarelyIgnoredLabels(UnsaidRarelyIgnoredLabels):
    def weight(self, batch):
        return (batch[1] != -100).sum()


class Uneven(tiny_cases.Pictures):
    """No two pictures are of one size."""

    def __getitem__(self, index: int):
        picture, target = super().__getitem__(index)
        return picture[..., : 4 + index % 5], target


class OneAtATime(tiny_cases.Sgd):
    """Pictures that no batch of two can hold."""

    default_batch = 1

    def model(self):
        return nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(12, 3))

    def dataset(self, data, *, train: bool):
        return Uneven(160)


class UnsaidTokenMean(tiny_cases.TokenMean):
    def weight(self, batch):
        return len(batch[0])


class UnsaidTokenMeanOfDicts(tiny_cases.PaddedText):
    def weight(self, batch):
        return len(batch["tokens"])


class Flat(tiny_cases.TokenMean):
    """Every loss is the same at first: what differs is the gradient."""

    def model(self):
        model = super().model()
        nn.init.zeros_(model[-1].weight)
        nn.init.zeros_(model[-1].bias)
        return model

    def weight(self, batch):
        return len(batch[0])


class ImaginaryScale(nn.Module):
    """Scales with the size of the batch, by the imaginary part of what is 0 at first."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.zeros(1, dtype=torch.complex64))

    def forward(self, output):
        return output * (1 + 100 * len(output) * self.scale.imag)


class ScaledByTheBatch(tiny_cases.Sgd):
    def model(self):
        return nn.Sequential(*super().model(), ImaginaryScale())


class Contrast(tiny_cases.Sgd):
    """Each sample is told from all others of the batch."""

    def loss(self, output, target):
        return functional.cross_entropy(output @ output.T, torch.arange(len(output)))


@pytest.mark.parametrize(
    "case", [*CASES, SaidRarelyIgnoredLabels, OneAtATime], ids=lambda case: case.__name__
)
def test_a_loss_that_adds_up_is_accepted(case):
    assert described(case)


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        (Sum, "It is a sum: return the mean, as reduction='mean' does"),
        (UnsaidClassWeights, "It is no mean over samples: return what it is a mean over from "),
        (UnsaidIgnoredLabels, "from weight(batch), such as the labels that ignore_index leaves"),
        (UnsaidRarelyIgnoredLabels, "from weight(batch), such as the labels that ignore_index"),
        (UnsaidTokenMean, "each with its weight(batch): return what the mean of the loss is over"),
        (UnsaidTokenMeanOfDicts, "each with its weight(batch): return what the mean"),
        (Flat, "each with its weight(batch): return what the mean"),
        (Contrast, "or return a mean over samples"),
        (ScaledByTheBatch, "or return a mean over samples"),
    ],
    ids=lambda case: getattr(case, "__name__", None),
)
def test_a_loss_that_does_not_add_up_is_refused_with_the_remedy(case, expected):
    message = refusal(case)
    assert expected in message
    assert re.search(r"\(/.*\.py, line \d+\)$", message)


@pytest.mark.parametrize("batch", [1, 2, 3])
def test_a_sum_is_refused_whatever_the_default_batch_is(batch):
    message = refusal(type("SmallSum", (Sum,), {"default_batch": batch}))
    assert "It is a sum: return the mean" in message


class RandomCode(tiny_cases.Sgd):
    """Draws numbers in training and in validation, beyond any module."""

    def model(self):
        class Noisy(nn.Module):
            def forward(self, pictures):
                return pictures + torch.randn_like(pictures)

        return nn.Sequential(Noisy(), super().model())


class SumOfRandomCode(Sum, RandomCode):
    pass


def test_random_numbers_of_a_step_excuse_what_they_explain_and_no_sum():
    assert described(RandomCode)
    assert "It is " in refusal(SumOfRandomCode)


class BatchWide(nn.Module):
    """Normalises over the batch while training, by its own code."""

    def forward(self, pictures):
        return pictures - pictures.mean(0) if self.training else pictures


class OwnBatchNorm(tiny_cases.Sgd):
    def model(self):
        return nn.Sequential(BatchWide(), super().model())


class OnlyTrained(tiny_cases.Sgd):
    """Its model has another output in validation, which the loss does not know."""

    def model(self):
        class Changing(nn.Sequential):
            def forward(self, pictures):
                output = super().forward(pictures)
                return output if self.training else [output]

        return Changing(*super().model())


@pytest.mark.parametrize("case", [OwnBatchNorm, OnlyTrained])
def test_one_mode_of_the_model_in_which_the_loss_adds_up_is_enough(case):
    assert described(case)


class WeightThatDoesNotAddUp(tiny_cases.ClassWeights):
    def weight(self, batch):
        return 1


class NegativeWeight(tiny_cases.Sgd):
    def weight(self, batch):
        return -1.0


class FailingCollate(tiny_cases.Sgd):
    def collate(self, samples):
        return torch.stack([picture for picture, _ in samples]).view(7)


class FailingLoss(tiny_cases.Sgd):
    def loss(self, output, target):
        return functional.cross_entropy(output, target.float()[:, None])


class FailingSample(tiny_cases.Sgd):
    def dataset(self, data, *, train: bool):
        class Broken(tiny_cases.Pictures):
            def __getitem__(self, index: int):
                raise OSError("cannot read sample")

        return Broken(160)


class LossPerSample(tiny_cases.Sgd):
    def loss(self, output, target):
        return functional.cross_entropy(output, target, reduction="none")


class ListOfPictures(tiny_cases.Sgd):
    """As detection does: a tuple of pictures, which nobody can cut."""

    def collate(self, samples):
        return tuple(zip(*samples, strict=True))

    def size(self, batch):
        return len(batch[0])

    def step(self, model, batch):
        pictures, targets = batch
        return self.loss(model(torch.stack(pictures)), torch.tensor(targets))


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        (WeightThatDoesNotAddUp, r"weight\(batch\) is 1, and of the batch's halves 1 and 1: "),
        (NegativeWeight, r"weight\(batch\) fails on a batch of .*weight\(batch\) is -1.0: return"),
        (FailingCollate, r"collate\(samples\) fails at 2 samples like \(float32 3x8x8, int\): "),
        (FailingLoss, r"fails on a batch of \(float32 2x3x8x8, int64 2\): .*line \d+\): fix it"),
        (FailingSample, r"dataset\(train=True\) fails at a sample: OSError: cannot .*line \d+\)"),
        (LossPerSample, r"the loss is float32 2: return a scalar, the mean"),
        (ListOfPictures, r"\(float32 3x8x8, .*cannot be cut into shares: return tensors whose"),
    ],
    ids=lambda case: getattr(case, "__name__", None),
)
def test_an_error_of_a_batch_says_where_and_what_the_batch_is(case, expected):
    assert re.search(expected, refusal(case))


def test_a_gpu_that_cannot_be_used_leaves_the_check_to_the_cpu(monkeypatch):
    """The story: a GPU that another process had to itself ended every search, also one on CPUs."""

    def check(kind: type) -> None:
        case = adapt_use_case(kind(), "tiny")
        check_loss(case, case.model(), case.dataset(None, train=True), "tiny")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    check(tiny_cases.Sgd)
    with pytest.raises(UseCaseError, match="It is a sum"):
        check(Sum)


def test_a_gpu_that_a_wrong_label_has_broken_is_not_asked_again(monkeypatch):
    """The story: torch seeds all GPUs, and a broken one raises: the CPU never had its turn."""

    def fail(seed):
        raise RuntimeError("CUDA error: device-side assert triggered")

    case = adapt_use_case(tiny_cases.Random(), "tiny")
    model, dataset = case.model(), case.dataset(None, train=True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "manual_seed_all", fail)
    check_loss(case, model, dataset, "tiny")


class RoundingGpu(loss_check._LossCheck):
    """A GPU with other kernels for the halves of a batch, which round in another way."""

    def __init__(self, case, model, dataset, spec, device):
        self._is_gpu = device.type == "cuda"
        super().__init__(case, model, dataset, spec, torch.device("cpu"))

    def run(self):
        if self._is_gpu:
            raise UseCaseError("the gradients of its halves differ by 2 %")
        super().run()


class OnGpusAlone(RoundingGpu):
    def _measure(self, batch, seed):
        raise loss_check._RunError("there is no such operator on a CPU")


@pytest.mark.parametrize(
    ("device", "case", "expected"),
    [
        (RoundingGpu, tiny_cases.Sgd, None),
        (RoundingGpu, Sum, "It is a sum"),
        (OnGpusAlone, tiny_cases.Sgd, "differ by 2 %"),
    ],
)
def test_a_loss_that_adds_up_on_the_cpu_is_not_refused_by_a_gpu(
    device, case, expected, monkeypatch
):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(loss_check, "_LossCheck", device)
    own = adapt_use_case(case(), "tiny")
    with pytest.raises(UseCaseError, match=expected) if expected else nullcontext():
        check_loss(own, own.model(), own.dataset(None, train=True), "tiny")
