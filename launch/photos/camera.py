"""What does the camera add to a scene? Exposure, tint, softness and grain."""

from __future__ import annotations

from functools import partial

from PIL import Image, ImageChops, ImageFilter

from launch.photos.dice import Dice
from launch.photos.textures import Values, grain_tile, levels


def expose(dice: Dice, image: Image.Image) -> Image.Image:
    """Take the photo: no two cameras show the same colours."""
    gain, gamma = dice.between(0.75, 1.25), dice.between(0.8, 1.25)
    warmth, haze = dice.between(-0.1, 0.1), dice.between(0, 0.08)
    tables: list[int] = []
    for cast in (1 + warmth, 1.0, 1 - warmth):
        bright = (1 - haze) * cast * gain
        tables += levels(partial(_film, dark=haze, bright=bright, gamma=gamma))
    image = image.point(tables)
    if dice.chance(0.2):
        image = image.filter(ImageFilter.BoxBlur(dice.between(0.4, 1.2)))
    grain = grain_tile(dice.pick((1, 2, 3, 6)))
    x, y = (dice.whole(0, grain.width - length) for length in image.size)
    piece = grain.crop((x, y, x + image.width, y + image.height))
    return ImageChops.add(image, piece, 1, -128)


def _film(values: Values, *, dark: float, bright: float, gamma: float) -> Values:
    return dark + bright * values**gamma
