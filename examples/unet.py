"""Use case: a U-Net, whose way up is given what the way down had, for masks of pictures."""

from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset


class Discs(TensorDataset):
    """Made-up pictures: a bright disc in noise, and the mask that covers it."""

    is_generated = True

    def __init__(self, count: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        rows, columns, radii = torch.rand(3, count, 1, 1, 1, generator=generator) * 32 + 8
        across = torch.arange(64)
        masks = ((across[:, None] - rows) ** 2 + (across - columns) ** 2 < radii**2).float()
        super().__init__(masks + 0.5 * torch.randn(masks.shape, generator=generator), masks)


class Unet(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.fine, self.coarse = Block(1, width), Block(width, width)
        self.bottom, self.rise = Block(width, width), Block(2 * width, width)
        self.head = nn.Conv2d(2 * width, 1, 1)
        self.down, self.up = nn.MaxPool2d(2), nn.Upsample(scale_factor=2)

    def forward(self, pictures: Tensor) -> Tensor:
        fine = self.fine(pictures)
        coarse = self.coarse(self.down(fine))
        found = self.up(self.bottom(self.down(coarse)))
        found = self.up(self.rise(torch.cat([found, coarse], 1)))
        return self.head(torch.cat([found, fine], 1))


class Block(nn.Sequential):
    def __init__(self, inputs: int, outputs: int) -> None:
        convolution = nn.Conv2d(inputs, outputs, 3, padding=1)
        super().__init__(convolution, nn.GroupNorm(4, outputs), nn.ReLU())


class UnetMasks:
    name = "unet masks"

    def model(self) -> Unet:
        return Unet(width=16)

    def dataset(self, data: Path | None, *, train: bool) -> Discs:
        return Discs(1024, seed=0) if train else Discs(128, seed=1)

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        return nn.functional.binary_cross_entropy_with_logits(output, target)

    def optimizer(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.AdamW(parameters, lr=1e-3)
