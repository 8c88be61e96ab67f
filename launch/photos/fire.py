"""What does a fire look like?"""

from __future__ import annotations

import numpy as np
from PIL import Image, ImageDraw

from launch.photos import things
from launch.photos.dice import Dice
from launch.photos.scenes import Scene
from launch.photos.textures import Values, add_glow, levels, noise_values, scaled

_ROWS, _COLUMNS = 80, 64


def add_fire(dice: Dice, scene: Scene) -> tuple[float, float]:
    """Light a fire in a scene, small or large.

    Returns:
        Where its smoke starts: column and row.
    """
    image, horizon = scene.image, scene.horizon
    near = dice.between(0, 1)
    tall = int(image.height * (0.14 + 0.66 * dice.between(0, 1) ** 1.3))
    wide = int(tall * dice.between(0.5, 1.5))
    foot = horizon + int(near * (image.height - horizon) * 0.9)
    left = int(dice.between(-0.2 * wide, image.width - 0.8 * wide))
    heart = left + wide / 2, foot - tall * 0.3
    dark = 1.15 - scene.light
    reach = max(tall, wide) * dice.between(0.8, 1.4)
    add_glow(image, heart, reach, (255, 120, 35), 0.35 + 0.45 * dark)
    heat = Image.fromarray((_flames(dice) * 255).astype(np.uint8))
    heat = heat.resize((wide, tall), Image.Resampling.BICUBIC)
    hot = dice.between(0, 1)
    colours = Image.merge("RGB", [heat.point(table) for table in _palette(hot)])
    opacity = heat.point(levels(lambda v: (v - 0.08) / 0.25))
    image.paste(colours, (left, foot - tall), opacity.point(scaled(dice.between(0.75, 1))))
    if dice.chance(0.4):
        place = heart[0], foot - tall * 0.05
        things.add_stones(dice, ImageDraw.Draw(image), place, wide, scene.light)
    return heart[0], foot - tall * 0.75


def _flames(dice: Dice) -> Values:
    """Give the heat, 0 to 1, of several tongues that flicker side by side, the base at the bottom.

    A tongue narrows with its height, and noise that grows with the height bends and frays it.
    """
    up = np.linspace(1, 0, _ROWS, dtype=np.float32)[:, None]
    across = np.linspace(-1, 1, _COLUMNS, dtype=np.float32)[None, :]
    bend = noise_values(dice, (_COLUMNS, _ROWS), zoom=dice.between(0.4, 1))
    fray = noise_values(dice, (_COLUMNS, _ROWS), zoom=dice.between(0.25, 0.6))
    swayed = across + bend * up * dice.between(0.3, 0.7)
    heat = np.zeros((_ROWS, _COLUMNS), dtype=np.float32)
    for _ in range(dice.whole(1, 5)):
        centre, height = dice.between(-0.55, 0.55), dice.between(0.4, 0.95)
        left = np.clip(1 - up / height, 0, 1)  # what is left of the tongue above this row
        width = dice.between(0.18, 0.4) * (0.15 + left**0.7)
        body = 1 - ((swayed - centre) / width) ** 2
        heat = np.maximum(heat, body * left**0.6)
    heat += 0.55 * fray * up**0.5 * (heat > 0)
    edge = np.clip((1 - np.abs(across)) * 6, 0, 1) * np.clip((1.02 - np.abs(2 * up - 1)) * 9, 0, 1)
    inside: Values = np.clip(heat * edge, 0, 1)
    return inside


def _palette(hot: float) -> list[list[int]]:
    """Give the tables from heat to red, green and blue: dark red, orange, yellow, nearly white."""
    return [
        levels(lambda v: 0.35 + 2.2 * v),
        levels(lambda v: (1.1 + 0.4 * hot) * v**1.2 - 0.06),
        levels(lambda v: (1.0 + 1.2 * hot) * (v - 0.62) + 0.08 * (1 - v)),
    ]
