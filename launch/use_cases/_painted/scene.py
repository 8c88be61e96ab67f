"""Scenes without fire or smoke: gradients, noise, random shapes, lights and clouds."""

from __future__ import annotations

from colorsys import hls_to_rgb
from functools import cache
from random import Random

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageChops, ImageDraw, ImageOps, ImageStat

Size = tuple[int, int]
Colour = tuple[int, int, int]

_LAMPS: tuple[Colour, ...] = ((255, 150, 50), (255, 190, 90), (255, 225, 160), (255, 245, 225))
# Corners in a unit square, x to the right and y down.
_OUTLINES: tuple[tuple[tuple[float, float], ...], ...] = (
    ((0, 0), (1, 0), (1, 1), (0, 1)),  # a building, a trunk
    ((0, 0.4), (0.5, 0), (1, 0.4), (1, 1), (0, 1)),  # a house
    ((0.5, 0), (1, 1), (0, 1)),  # a fir
    ((0, 0), (1, 0), (1, 1), (0.9, 1), (0.9, 0.2), (0.1, 0.2), (0.1, 1), (0, 1)),  # a table
    ((0.3, 0), (0.8, 0.1), (1, 0.5), (0.9, 0.9), (0.2, 1), (0, 0.4)),  # a stone, a treetop
)
_radial_gradient = cache(Image.radial_gradient)


def paint_scene(rng: Random, size: Size) -> Image.Image:
    """Paint a scene; much of it has the colours of fire or of smoke."""
    width, height = size
    horizon = int(height * rng.uniform(0.35, 0.75))
    sky = Image.linear_gradient("L").resize(size, Image.Resampling.NEAREST)
    sky = Image.blend(sky, noise(rng, size, rng.uniform(1, 4), flat=3), rng.uniform(0, 0.4))
    image = ImageOps.colorize(sky, _draw_colour(rng), _draw_colour(rng))
    ground = noise(rng, (width, height - horizon), rng.uniform(0.7, 2))
    contrast = rng.uniform(0.1, 0.6)
    ground = ground.point(lambda value: 128 + contrast * (value - 128))
    image.paste(ImageOps.colorize(ground, "black", "white", _draw_colour(rng)), (0, horizon))
    for _ in range(rng.randint(2, 12)):
        add_shape(rng, image, rng.uniform(horizon - 0.05 * height, height))
    daylight = rng.choice((1, 1, 0.75, 0.5, 0.25))
    image = image.point(lambda value: daylight * value)
    for _ in range(rng.randint(0, 3)):  # the sun, lamps
        x, y = rng.random() * width, rng.uniform(0.05, 0.95) * height
        radius, warm = rng.uniform(5, 25), rng.choice(_LAMPS)
        add_glow(image, x, y, radius * rng.uniform(3, 8), warm, 0.75)
        add_glow(image, x, y, radius, warm, 3)
    if rng.random() < 0.4:  # clouds, fog
        density = noise(rng, size, rng.uniform(1, 4), flat=3).point(lambda value: 2 * value - 220)
        add_veil(rng, image, density)
    return image


def add_shape(rng: Random, image: Image.Image, foot: float) -> None:
    """Add a flat shape that stands on a row."""
    wide, tall = image.width * rng.uniform(0.02, 0.3), image.height * rng.uniform(0.06, 0.45)
    x, y = rng.uniform(-wide / 2, image.width - wide / 2), foot - tall
    outline = [(x + wide * right, y + tall * down) for right, down in rng.choice(_OUTLINES)]
    ImageDraw.Draw(image).polygon(outline, fill=_draw_colour(rng))


def add_glow(
    image: Image.Image, x: float, y: float, radius: float, colour: Colour, strength: float
) -> None:
    """Add light around a point; above a strength of 1 the middle is a disc."""
    light = _radial_gradient("L").point(lambda value: strength * max(0.0, 255 - 1.42 * value))
    light = light.resize((int(2 * radius), int(2 * radius)), Image.Resampling.BILINEAR)
    image.paste(colour, (int(x - radius), int(y - radius)), light)


def add_veil(rng: Random, image: Image.Image, density: Image.Image) -> None:
    """Lay grey billows over an image, as thick as the grey levels of ``density`` say.

    They are brighter or darker than the image on average, and so can be seen.
    """
    behind, away = ImageStat.Stat(image.convert("L")).mean[0], rng.uniform(50, 115)
    grey = rng.choice([grey for grey in (behind - away, behind + away) if 10 < grey < 245])
    contrast, relief = rng.uniform(0.7, 1.8), rng.uniform(0.15, 0.45) * grey / 128
    billows = noise(rng, image.size, rng.uniform(0.8, 2.5))
    holes = billows.point(lambda value: 184 + contrast * (value - 128))
    veil = billows.point(lambda value: grey + relief * (value - 128)).convert("RGB")
    image.paste(veil, mask=ImageChops.multiply(density, holes))


def noise(rng: Random, size: Size, zoom: float, *, flat: float = 1) -> Image.Image:
    """Cut grey levels out of fractal noise.

    One of its pixels becomes ``zoom`` pixels wide: a large one gives coarse noise. Its forms are
    ``flat`` times wider than high.
    """
    tile = _noise_tile()
    width, height = min(tile.width, size[0] / zoom), min(tile.height, size[1] / zoom * flat)
    x, y = rng.uniform(0, tile.width - width), rng.uniform(0, tile.height - height)
    return tile.resize(size, Image.Resampling.BILINEAR, (x, y, x + width, y + height))


@cache
def _noise_tile() -> Image.Image:
    """Sum octaves of smoothed random pixels, of 4, 8, ..., 1024 per side."""
    rng, total = Random(0), np.zeros((1024, 1024))  # noqa: S311 - a picture, not a secret
    for octave in range(2, 11):
        pixels = Image.frombytes("L", (2**octave, 2**octave), rng.randbytes(4**octave))
        smooth = pixels.resize(total.shape, Image.Resampling.BICUBIC)
        total += (np.asarray(smooth) - 127.5) * 0.62**octave
    return grey_levels(total / total.std() * 0.23 + 0.5, total.shape)


def grey_levels(values: npt.NDArray[np.float64], size: Size) -> Image.Image:
    """Turn values from 0 to 1 into an image of another size."""
    levels = (255 * np.clip(values, 0, 1)).astype(np.uint8)
    return Image.fromarray(levels).resize(size, Image.Resampling.BILINEAR)


def _draw_colour(rng: Random) -> Colour:
    """Draw a colour from red to blue, most often an orange."""
    hue, lightness = rng.triangular(0, 0.66, 0.08), rng.uniform(0.1, 0.85)
    red, green, blue = hls_to_rgb(hue, lightness, rng.uniform(0, 0.65))
    return int(255 * red), int(255 * green), int(255 * blue)
