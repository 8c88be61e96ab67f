"""Last part of preparing photos, for many at once: mirrored, scaled to 0 to 1, normalised.

To the last bit as `torchvision.transforms` finishes one after the other on a CPU, which is why no
two of the three operations are made one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

_MAX_LEVEL = 255.0
_BYTES_PER_THREAD = 4 * 3 * 224 * 224 * 4
"""Of fp32: four photos of a usual size, or some hundred digits."""

_KEPT_CONSTANTS = 16


def flip_and_normalise(
    pixels: Tensor, mirrored: Tensor | None, mean: Sequence[float], deviation: Sequence[float]
) -> Tensor:
    """Flip, scale and normalise a batch on its device.

    Args:
        pixels: uint8, samples x channels x height x width, contiguous or channels_last.
        mirrored: Whether each sample is mirrored left to right; ``None``: none is.
        mean: Mean of each channel, of values from 0 to 1.
        deviation: Standard deviation of each channel.

    Returns:
        fp32, with the strides of ``pixels``.
    """
    photos = torch.empty_like(pixels, dtype=torch.float32)
    is_last = pixels.is_contiguous(memory_format=torch.channels_last)
    format_ = torch.channels_last if is_last else torch.contiguous_format
    width, device = pixels.size(3), pixels.device
    constants = [_repeat(tuple(values), width, format_, device) for values in (mean, deviation)]
    if pixels.is_cuda:
        if mirrored is not None:
            pixels = torch.where(mirrored.view(-1, 1, 1, 1), pixels.flip(3), pixels)
        _normalise(photos.copy_(pixels), *constants)
        return photos
    # Some of them are in the cores' caches from the first operation to the last.
    one = max(1, photos[0].nbytes) if len(photos) else 1
    some = max(1, _BYTES_PER_THREAD * torch.get_num_threads() // one)
    for low in range(0, len(pixels), some):
        raw, finished = pixels[low : low + some], photos[low : low + some]
        if mirrored is None:
            finished.copy_(raw)
        else:
            flags = mirrored[low : low + some].tolist()
            for photo, plain, flag in zip(finished, raw, flags, strict=True):
                photo.copy_(plain.flip(2) if flag else plain)
        _normalise(finished, *constants)
    return photos


def _normalise(photos: Tensor, mean: Tensor, deviation: Tensor) -> None:
    # A GPU multiplies by the inverse of a plain number, which rounds differently from a division;
    # by a tensor it divides.
    white = _MAX_LEVEL if photos.device.type == "cpu" else photos.new_full((1,), _MAX_LEVEL)
    photos.div_(white).sub_(mean).div_(deviation)


@lru_cache(maxsize=_KEPT_CONSTANTS)
def _repeat(
    values: tuple[float, ...], width: int, format_: torch.memory_format, device: torch.device
) -> Tensor:
    """Repeat one value a channel along one row of a picture, in the strides of the pictures.

    So the innermost loop goes over a row and not, in channels_last, over three channels. Kept for
    the next batch: to copy numbers to a GPU is to wait until it has computed all that it was given.
    """
    row = torch.tensor(values, dtype=torch.float32, device=device).view(1, -1, 1, 1)
    return row.expand(1, -1, 1, width).contiguous(memory_format=format_)
