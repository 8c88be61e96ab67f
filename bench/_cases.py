"""Use cases of benches: models on samples that are in memory, or that take a known time.

Some have as many training samples as the file ``samples`` in the folder of ``--data`` says.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, interpolate
from torch.optim import SGD, Optimizer
from torch.utils.data import Dataset, Subset, TensorDataset

from launch.use_cases import resolve
from launch.use_cases._base import UseCase
from launch.use_cases.mnist_cnn import MnistCnn
from launch.use_cases.simplebig import SimpleBig

SAMPLE_S = 0.004
"""That a sample of `ArrayFiles` and `SlowSamples` takes."""

ARRAY_SHAPE = (3, 208, 208)
SIDE = 224
COUNT, STEP_S = "BENCH_PICTURES", "BENCH_STEP_S"
"""Environment variables of `NoisePictures`: their number, and seconds of a step."""


def _told(data: Path | None) -> int:
    assert data is not None
    return int((data / "samples").read_text())


class Pictures(Dataset[tuple[Tensor, int]]):
    """A few random pictures, again and again.

    Args:
        samples: How many there seem to be.
    """

    def __init__(self, samples: int) -> None:
        generator = torch.Generator().manual_seed(0)
        self._pictures = torch.randn(min(samples, 64), 3, 224, 224, generator=generator)
        self._samples = samples

    def __len__(self) -> int:
        return self._samples

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self._pictures[index % len(self._pictures)], index % 3


class AlexNetInMemory(SimpleBig):
    """Model, loss and optimizer of `simplebig`: nothing but computing and averaging is timed."""

    name = "alexnet-in-memory"

    def prepare(self, data: Path | None, report: object) -> None:
        pass

    def dataset(  # type: ignore[override] # no photos
        self, data: Path | None, *, train: bool
    ) -> Pictures:
        return Pictures(_told(data) if train else 0)


class SlowedSimpleBig(SimpleBig):
    """`simplebig` with steps that are longer by a known time.

    Args:
        pause_s: Sleep before each loss, of which each worker has one for a micro-batch.
    """

    def __init__(self, pause_s: float = 0.0) -> None:
        self._pause_s = pause_s

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        time.sleep(self._pause_s)
        return super().loss(output, target)


class ShortEpochs(MnistCnn):
    """`mnist_cnn` on a tenth of its digits, so that its loss is known often."""

    name = "short-epochs"

    def dataset(  # type: ignore[override] # a part of what it gives
        self, data: Path | None, *, train: bool
    ) -> Dataset[Any]:
        return Subset(super().dataset(data, train=train), range(6000 if train else 2000))


class Patterns(Dataset[tuple[Tensor, int]]):
    """Images of random patterns, one pattern for each class, moved and under noise.

    Args:
        samples: How many.
        seed: Of what is drawn; the patterns are the same for all.
    """

    def __init__(self, samples: int, seed: int) -> None:
        coarse = torch.randn(10, 1, 7, 7, generator=torch.Generator().manual_seed(0))
        patterns = interpolate(coarse, size=(28, 28), mode="bilinear")
        generator = torch.Generator().manual_seed(seed)
        self._labels = torch.randint(10, (samples,), generator=generator)
        # By 4 pixels at most, each way and around the edge.
        moves = torch.randint(-4, 5, (samples, 2), generator=generator).tolist()
        self._images = torch.stack(
            [
                patterns[label].roll(move, (1, 2))
                for label, move in zip(self._labels.tolist(), moves, strict=True)
            ]
        )
        self._images += 0.7 * torch.randn(self._images.shape, generator=generator)

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self._images[index], int(self._labels[index])


class PatternsInMemory(MnistCnn):
    """`mnist_cnn` on patterns in place of digits."""

    name = "patterns-in-memory"

    def prepare(self, data: Path | None, report: object) -> None:
        pass

    def dataset(  # type: ignore[override] # no digits
        self, data: Path | None, *, train: bool
    ) -> Patterns:
        return Patterns(_told(data) if train else 2000, int(train))


class Still:
    """A built-in use case that begins with the weights of a file and learns nothing.

    Args:
        case: Its name; it has no schedule of its learning rate.
        weights: The file.
    """

    def __init__(self, case: str, weights: str) -> None:
        self._case = resolve(case).load()
        self._weights = weights

    def __getattr__(self, name: str) -> Any:
        return getattr(self._case, name)

    def model(self) -> nn.Module:
        model = self._case.model()
        model.load_state_dict(load_file(self._weights))
        return model

    def optimizer(self, parameters: Iterable[nn.Parameter]) -> Optimizer:
        optimizer = self._case.optimizer(parameters)
        for group in optimizer.param_groups:
            group["lr"] = 0.0
        return optimizer


class Tiny(UseCase):
    """A network that trains in a blink."""

    name = "tiny"
    default_batch = 16
    shape: tuple[int, ...] = (3, 16, 16)
    counts = 512, 32
    """Of training and of validation samples."""

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 196, 3))

    def dataset(self, data: Path | None, *, train: bool) -> Dataset[Any]:
        generator = torch.Generator().manual_seed(int(train))
        count = self.counts[0 if train else 1]
        samples = torch.randn(count, *self.shape, generator=generator)
        return TensorDataset(samples, torch.arange(count) % 3)

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        return cross_entropy(output, target)

    def optimizer(self, parameters: Iterable[nn.Parameter]) -> SGD:
        return SGD(parameters, lr=0.001, momentum=0.9)


class TinyWithChild(Tiny):
    """Steps that are a little longer, and a process such as a user's own code may leave running."""

    shape = (3, 64, 64)

    def model(self) -> nn.Module:
        subprocess.Popen(["sleep", "3600"])
        return nn.Sequential(
            *(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 32, 3), nn.ReLU()),
            *(nn.Flatten(), nn.Linear(32 * 60 * 60, 3)),
        )


class TinyWithDropout(Tiny):
    """Random numbers in each step of 20 ms: a training that goes on has to draw the same."""

    default_batch = 8
    shape = (16,)
    counts = 128, 8

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 3))

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            time.sleep(0.02)
        return super().loss(output, target)


class Waits(Dataset[tuple[Tensor, int]]):
    """Samples that take a set time, and no processor, as if a network sent them."""

    def __init__(self, samples: int) -> None:
        self._samples = samples
        self._features = torch.randn(64, generator=torch.Generator().manual_seed(0))

    def __len__(self) -> int:
        return self._samples

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        time.sleep(SAMPLE_S)
        return self._features, index % 2


class SlowSamples(Tiny):
    """Samples that take a set time to come, and next to nothing to train."""

    name = "slow-samples"
    default_batch = 32

    def model(self) -> nn.Module:
        return nn.Linear(64, 2)

    def dataset(self, data: Path | None, *, train: bool) -> Waits:
        return Waits(_told(data) if train else 0)


class Arrays(Dataset[tuple[Tensor, int]]):
    """Arrays of which each is a file."""

    def __init__(self, files: list[Path]) -> None:
        self._files = files

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.from_numpy(np.load(self._files[index])).float() / 255, index % 2


class ArrayFiles(Tiny):
    """Arrays of a folder, a file for each sample, and steps that take a set time.

    They sleep: the reading is measured, not the computing.
    """

    name = "array-files"
    default_batch = 32

    def model(self) -> nn.Module:
        return nn.Sequential(nn.AvgPool2d(104), nn.Flatten(), nn.Linear(12, 2))

    def dataset(self, data: Path | None, *, train: bool) -> Arrays:
        assert data is not None
        files = sorted(data.glob("*/*.npy"))
        return Arrays(files[16:] if train else files[:16])

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            time.sleep(SAMPLE_S * len(output))
        return super().loss(output, target)


class Noise(Dataset[Any]):
    """Pictures that differ, each the same whoever asks for it, and cost nothing to decode."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._noise = np.random.default_rng(0).integers(0, 256, (SIDE, SIDE, 3), np.uint8)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        pixels = torch.from_numpy(self.pixels(index)).permute(2, 0, 1)[None]
        return self.finish(pixels, None)[0], self.target(index)

    def pixels_name(self) -> str:
        return f"noise {self._count}"

    def pixels_key(self) -> str:
        return "1"

    def pixel_shape(self) -> tuple[int, int, int]:
        return SIDE, SIDE, 3

    def pixels(self, index: int) -> NDArray[np.uint8]:
        picture = self._noise.copy()
        picture[0, 0, :] = (index >> 16 & 255, index >> 8 & 255, index & 255)
        return picture

    def target(self, index: int) -> int:
        return index % 2

    def draw(self, count: int) -> Tensor | None:
        return None

    def finish(self, pixels: Tensor, drawn: Tensor | None) -> Tensor:
        return pixels.float() / 255


class NoisePictures(Tiny):
    """Pictures of noise, as many as the environment says, and steps that compute for a set time."""

    name = "noise-pictures"
    default_batch = 64

    def model(self) -> nn.Module:
        return nn.Sequential(nn.AvgPool2d(112), nn.Flatten(), nn.Linear(12, 2))

    def dataset(self, data: Path | None, *, train: bool) -> Noise:
        return Noise(int(os.environ[COUNT]) if train else 4)

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        give_up, matrix = time.perf_counter() + float(os.environ[STEP_S]), torch.ones(256, 256)
        while time.perf_counter() < give_up:  # it computes: reading must find time beside it
            matrix = torch.tanh(matrix @ matrix)
        return super().loss(output, target)
