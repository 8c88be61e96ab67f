"""What does smoke look like, and what is mistaken for it? Plumes; clouds and fog."""

from __future__ import annotations

from functools import partial

import numpy as np
from PIL import Image, ImageChops

from launch.photos.dice import Dice
from launch.photos.scenes import Scene
from launch.photos.textures import Values, levels, noise, noise_values

_ROWS, _COLUMNS = 60, 80


def add_plume(
    dice: Dice, scene: Scene, source: tuple[float, float] | None, thickness: float
) -> Image.Image:
    """Let smoke rise, widen and drift.

    Args:
        dice: Chooses its way.
        scene: What it hides.
        source: Column and row where it starts; none is anywhere on the ground.
        thickness: Opacity where it is thickest, 0 to 1.
    """
    image = scene.image
    if source is None:
        ground = dice.between(scene.horizon - 0.1 * image.height, image.height * 0.95)
        source = dice.between(0.1, 0.9) * image.width, ground
    start = source[0] / image.width, source[1] / image.height
    shape = Image.fromarray((_plume(dice, start) * 255).astype(np.uint8))
    shape = shape.resize(image.size, Image.Resampling.BICUBIC)
    grey = dice.pick((30, 65, 110, 165, 195, 220)) * (0.45 + 0.55 * scene.light)
    behind = _brightness(image, source)
    if abs(grey - behind) < 40:  # it would not be seen
        grey = behind + 60 if behind < 128 else behind - 70
    return _veil(dice, image, shape, grey=grey, thickness=thickness)


def add_clouds(dice: Dice, scene: Scene) -> Image.Image:
    """Spread clouds over the sky; they lie in layers and touch no ground."""
    fade = [255 * max(0.0, min(1.0, 1.5 * (1 - row / 32))) for row in range(40)]
    grey = dice.between(150, 250) * (0.25 + 0.75 * scene.light)
    return _layer(
        dice, scene, fade, bottom=scene.horizon, grey=grey, strength=dice.between(0.4, 0.9)
    )


def add_fog(dice: Dice, scene: Scene) -> Image.Image:
    """Spread fog over the ground, in one bank from side to side."""
    thin, strength = dice.between(6, 16), dice.between(0.35, 0.85)
    middle = dice.between(15, 35)
    fade = [255 * float(np.exp(-(((row - middle) / thin) ** 2))) for row in range(40)]
    grey = dice.between(150, 225) * (0.3 + 0.7 * scene.light)
    return _layer(dice, scene, fade, bottom=scene.image.height, grey=grey, strength=strength)


def _plume(dice: Dice, start: tuple[float, float]) -> Values:
    """Give the density, 0 to 1, of a plume from ``start``, both parts of it from 0 to 1."""
    rows = np.linspace(0, 1, _ROWS, dtype=np.float32)[:, None]
    columns = np.linspace(0, 1, _COLUMNS, dtype=np.float32)[None, :]
    risen = start[1] - rows
    above = np.clip(risen, 0, 1)
    bend = noise_values(dice, (_COLUMNS, _ROWS), zoom=dice.between(0.3, 0.8))
    wind, curl = dice.between(-0.9, 0.9), dice.between(0.05, 0.3)
    centre = start[0] + wind * above ** dice.between(1.0, 1.8) + curl * bend * above
    width = dice.between(0.03, 0.1) + dice.between(0.3, 0.8) * above
    density = np.exp(-(((columns - centre) / width) ** 2)) * np.clip(risen * 18 + 0.5, 0, 1)
    thinned: Values = np.clip(density * np.clip(1.25 - dice.between(0.2, 0.9) * above, 0, 1), 0, 1)
    return thinned


def _layer(
    dice: Dice, scene: Scene, fade: list[float], *, bottom: int, grey: float, strength: float
) -> Image.Image:
    column = Image.fromarray(np.array(fade, dtype=np.uint8)[:, None])
    shape = Image.new("L", scene.image.size)
    column = column.resize((1, max(1, bottom)), Image.Resampling.BILINEAR)
    shape.paste(column.resize((scene.image.width, max(1, bottom)), Image.Resampling.NEAREST))
    return _veil(dice, scene.image, shape, grey=grey, thickness=strength, flat=3.0)


def _brightness(image: Image.Image, source: tuple[float, float]) -> float:
    """Look how bright it is above a place."""
    box = source[0] - 40, 0, source[0] + 40, max(8, source[1])
    edges = (max(0, box[0]), 0, min(image.width, box[2]), min(image.height, box[3]))
    return float(np.asarray(image.crop(edges).reduce(8)).mean())


def _veil(
    dice: Dice,
    image: Image.Image,
    shape: Image.Image,
    *,
    grey: float,
    thickness: float,
    flat: float = 1.0,
) -> Image.Image:
    """Lay billows of a grey over a picture, as thick as ``shape`` says; ``flat`` draws them out."""
    zoom = dice.between(0.9, 2.2)
    billows = noise(dice, image.size, zoom=zoom, flat=flat, roughness=2.0)
    contrast = dice.between(0.7, 1.8)
    holes = billows.point(levels(lambda v: 0.72 + contrast * (v - 0.5)))
    opacity = ImageChops.multiply(shape, holes).point(
        levels(lambda v: thickness * np.minimum(1, 1.6 * v))
    )
    relief = dice.between(0.3, 0.9)
    tint = dice.between(-0.06, 0.06)
    tones = [
        billows.point(levels(partial(_tone, grey=grey * (1 + cast * tint), relief=relief)))
        for cast in (1, 0, -1)
    ]
    return Image.composite(Image.merge("RGB", tones), image, opacity)


def _tone(values: Values, *, grey: float, relief: float) -> Values:
    return grey / 255 * (1 + relief * (values - 0.5))
