"""Batch of decoded pictures, which the training device finishes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

Finish = Callable[[Tensor, Tensor | None], Tensor]
"""As `launch.data.pictures.Pictures.finish`."""


@dataclass(frozen=True, slots=True)
class RawPictures:
    """Decoded pictures with what was drawn for them, in place of a batch's tensor.

    A quarter of the bytes of the finished batch, and each micro-batch and each replica finishes
    its own part.
    """

    pixels: Tensor
    """uint8, samples x channels x height x width, in any strides."""

    drawn: Tensor | None
    """Result of `Pictures.draw` for these samples."""

    finish: Finish

    def __len__(self) -> int:
        return self.pixels.size(0)

    def split(self, parts: int) -> list[RawPictures]:
        """Cut along the samples, without copying."""
        pixels = self.pixels.tensor_split(parts)
        drawn = [None] * parts if self.drawn is None else self.drawn.tensor_split(parts)
        return [
            replace(self, pixels=some, drawn=for_some)
            for some, for_some in zip(pixels, drawn, strict=True)
        ]

    def finished(self, device: torch.device, memory_format: torch.memory_format) -> Tensor:
        """Make the batch for the model, on a device and in a memory format.

        Args:
            device: Where the flips and the arithmetic run.
            memory_format: ``torch.preserve_format`` is contiguous, as samples that were
                finished one by one and stacked are.
        """
        if memory_format is torch.preserve_format:
            memory_format = torch.contiguous_format
        drawn = self.drawn
        if drawn is not None:
            drawn = drawn.to(device, non_blocking=True)
        pixels = self.pixels.to(device, non_blocking=True)  # a quarter of the bytes travels
        return self.finish(pixels.contiguous(memory_format=memory_format), drawn)
