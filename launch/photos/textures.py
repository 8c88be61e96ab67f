"""Which surfaces and lights are pictures put together from?"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import numpy.typing as npt
from numpy.random import PCG64, Generator
from PIL import Image

from launch.photos.dice import Colour, Dice

Size = tuple[int, int]
Box = tuple[int, int, int, int]

Values = npt.NDArray[np.float32]

_TILE = 512
_LEVELS: Values = np.linspace(0, 1, 256, dtype=np.float32)


@cache
def _noise_tile(number: int, roughness: float) -> Image.Image:
    """Make a square of fractal noise, spectrum ``1 / f ** roughness``, values 0 to 255.

    It is twice repeated in both directions, so that any window of one tile's size fits in.
    """
    white = Generator(PCG64((number, 77))).random((_TILE, _TILE))
    along = np.fft.fftfreq(_TILE)[:, None] ** 2 + np.fft.rfftfreq(_TILE)[None, :] ** 2
    along[0, 0] = 1.0
    spectrum = np.fft.rfft2(white) * along ** (-roughness / 2)
    spectrum[0, 0] = 0.0
    noise = np.fft.irfft2(spectrum, s=(_TILE, _TILE))
    levels = np.clip(noise / noise.std() * 58 + 128, 0, 255).astype(np.uint8)
    return Image.fromarray(np.tile(levels, (2, 2)))


def noise(
    dice: Dice, size: Size, *, zoom: float, flat: float = 1.0, roughness: float = 1.7
) -> Image.Image:
    """Cut a grey cloud of fractal noise.

    Args:
        dice: Chooses the piece.
        size: Width and height in pixels.
        zoom: Pixels of the picture per pixel of the noise: large is coarse.
        flat: How many times wider than high it shall look.
        roughness: Exponent of its spectrum: large is smooth.
    """
    tile = _noise_tile(dice.whole(0, 2), roughness)
    width = min(_TILE, max(2, int(size[0] / zoom)))
    height = min(_TILE, max(2, int(size[1] / zoom * flat)))
    x, y = dice.whole(0, _TILE - 1), dice.whole(0, _TILE - 1)
    return tile.resize(size, Image.Resampling.BILINEAR, (x, y, x + width, y + height))


def noise_values(dice: Dice, size: Size, *, zoom: float) -> Values:
    """Cut fractal noise as numbers between -1 and 1, rows first."""
    return np.asarray(noise(dice, size, zoom=zoom), dtype=np.float32) / 127.5 - 1.0


@cache
def _glow_tile() -> Image.Image:
    along = np.linspace(-1, 1, 128) ** 2
    light = np.clip(1 - np.sqrt(along[:, None] + along[None, :]), 0, 1) ** 2
    return Image.fromarray((light * 255).astype(np.uint8))


def add_glow(
    image: Image.Image, centre: tuple[float, float], radius: float, colour: Colour, strength: float
) -> None:
    """Lay light around a point."""
    side = max(2, int(2 * radius))
    light = _glow_tile().resize((side, side), Image.Resampling.BILINEAR)
    corner = int(centre[0] - radius), int(centre[1] - radius)
    image.paste(
        colour, (*corner, corner[0] + side, corner[1] + side), light.point(scaled(strength))
    )


def scaled(factor: float) -> list[int]:
    """Give the table that multiplies grey levels."""
    return levels(lambda level: level * factor)


def levels(curve: Callable[[Values], Values]) -> list[int]:
    """Give a table of grey levels, both counted from 0 to 1."""
    table: list[int] = np.clip(255 * curve(_LEVELS) + 0.5, 0, 255).astype(np.uint8).tolist()
    return table


@cache
def grain_tile(strength: int) -> Image.Image:
    """Make coloured grain around middle grey, as a sensor adds it."""
    generator = Generator(PCG64((strength, 78)))
    # The mean of four even draws is close enough to a bell.
    draws = generator.random((4, _TILE, _TILE, 3), dtype=np.float32).sum(axis=0) - 2
    return Image.fromarray((128.5 + draws * (strength * 1.73)).astype(np.uint8))
