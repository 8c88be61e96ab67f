"""Where does a picture play? Landscapes, woods, streets and rooms, without fire or smoke."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
from PIL import Image, ImageChops, ImageDraw

from launch.photos import things
from launch.photos.dice import Colour, Dice
from launch.photos.textures import Size, levels, noise, noise_values

Ramp = tuple[Colour, Colour, Colour]

# From the top of the sky to the horizon.
_SKIES: tuple[tuple[Ramp, float], ...] = (
    (((70, 120, 200), (130, 175, 225), (200, 220, 235)), 1.0),
    (((95, 140, 190), (160, 190, 215), (225, 225, 220)), 0.95),
    (((150, 155, 160), (180, 183, 186), (205, 206, 205)), 0.85),
    (((110, 115, 122), (140, 144, 148), (172, 172, 170)), 0.7),
    (((60, 70, 120), (200, 120, 90), (250, 175, 80)), 0.55),
    (((90, 60, 90), (220, 100, 50), (255, 190, 70)), 0.5),
    (((20, 25, 55), (50, 50, 85), (110, 85, 95)), 0.35),
    (((6, 8, 20), (12, 15, 32), (25, 28, 45)), 0.22),
)
_GROUNDS: tuple[Colour, ...] = (
    (95, 125, 55), (120, 130, 70), (140, 115, 75), (165, 145, 95), (90, 85, 75), (200, 205, 210),
    (70, 95, 120),
)  # fmt: skip
_WALLS: tuple[Colour, ...] = (
    (215, 205, 185), (190, 195, 200), (225, 220, 215), (170, 120, 85), (150, 165, 145),
    (205, 150, 90), (120, 125, 135),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Scene:
    """A picture and what one must know to put something into it."""

    image: Image.Image

    horizon: int
    """Row where the ground begins."""

    light: float
    """Brightness of the day, 1 at noon."""


def draw_scene(dice: Dice, size: Size) -> Scene:
    """Draw any kind of scene."""
    return dice.pick((_landscape, _landscape, _wood, _street, _room))(dice, size)


def dim(colour: Colour, light: float) -> Colour:
    """Give a surface's colour under less light."""
    red, green, blue = (int(part * light) for part in colour)
    return red, green, blue


def ramp(size: Size, colours: Ramp) -> Image.Image:
    """Fill a picture with colours that go over into each other from top to bottom."""
    stops = Image.fromarray(np.array(colours, dtype=np.uint8)[:, None, :])
    column = stops.resize((1, size[1]), Image.Resampling.BILINEAR)
    return column.resize(size, Image.Resampling.NEAREST)


def roughen(dice: Dice, image: Image.Image, top: int, *, zoom: float) -> None:
    """Give the surfaces below a row a grain of their own."""
    part = image.crop((0, top, *image.size))
    strength = dice.between(0.2, 0.75)
    grey = noise(dice, part.size, zoom=zoom, roughness=1.2)
    grey = grey.point(levels(lambda v: 0.5 + strength * (v - 0.5)))
    image.paste(ImageChops.soft_light(part, Image.merge("RGB", (grey, grey, grey))), (0, top))


def _sky(dice: Dice, size: Size, horizon: int) -> tuple[Image.Image, float]:
    colours, light = dice.pick(_SKIES)
    top, middle, bottom = (dice.shade(colour, 12) for colour in colours)
    image = Image.new("RGB", size)
    image.paste(ramp((size[0], max(1, horizon)), (top, middle, bottom)), (0, 0))
    return image, light


def _landscape(dice: Dice, size: Size) -> Scene:
    width, height = size
    horizon = int(height * dice.between(0.35, 0.65))
    image, light = _sky(dice, size, horizon + height // 12)
    if dice.chance(0.3):
        things.add_sun(dice, image, horizon, light)
    draw = ImageDraw.Draw(image)
    ground = dim(dice.shade(dice.pick(_GROUNDS)), 0.25 + 0.75 * light)
    haze = cast(Colour, image.getpixel((0, max(0, horizon - 1))))
    for far in (0.65, 0.4, 0.2)[: dice.whole(0, 3)]:
        _ridge(dice, draw, size, horizon - int(height * far * 0.22), _mix(ground, haze, far))
    draw.rectangle((0, horizon, width, height), fill=ground)
    for _ in range(dice.whole(0, 4)):
        things.add_tree(dice, draw, size, horizon, light)
    if dice.chance(0.35):
        things.add_house(dice, draw, size, horizon, light)
    roughen(dice, image, horizon, zoom=dice.between(0.8, 2))
    return Scene(image, horizon, light)


def _ridge(dice: Dice, draw: ImageDraw.ImageDraw, size: Size, top: int, colour: Colour) -> None:
    width, height = size
    heights = noise_values(dice, (width // 8 + 2, 2), zoom=dice.between(0.15, 0.5))[0]
    line = [(8 * i, top + float(h) * height * 0.07) for i, h in enumerate(heights)]
    draw.polygon([(0, height), *line, (width + 16, height)], fill=colour)


def _wood(dice: Dice, size: Size) -> Scene:
    width, height = size
    horizon = int(height * dice.between(0.5, 0.75))
    light = dice.pick((1.0, 0.8, 0.55, 0.3))
    leaves = dice.pick(((80, 110, 45), (60, 90, 50), (150, 110, 40), (110, 115, 60), (175, 90, 35)))
    far = dim(dice.shade(leaves), light)
    pale = _mix(far, (215, 220, 205), dice.between(0.1, 0.6) * light)
    image = ramp(size, (dim(far, 0.7), pale, dim(far, 0.8)))
    roughen(dice, image, 0, zoom=dice.between(1.5, 4))
    draw = ImageDraw.Draw(image)
    floor = dim(dice.shade(dice.pick(((105, 85, 60), (90, 100, 50), (130, 105, 65)))), light)
    draw.rectangle((0, horizon, width, height), fill=floor)
    bark = dim(dice.shade((85, 70, 55)), light)
    for depth in sorted(dice.between(0.15, 1) for _ in range(dice.whole(4, 14))):
        x, thick = dice.between(0, width), max(2.0, depth * width * 0.06)
        foot, lean = horizon + depth * (height - horizon) * 0.6, dice.between(-0.05, 0.05) * height
        shape = [(x, foot), (x + lean, 0), (x + lean + thick * 0.7, 0), (x + thick, foot)]
        draw.polygon(shape, fill=_mix(bark, pale, 0.6 * (1 - depth)))
    roughen(dice, image, horizon // 2, zoom=dice.between(0.7, 1.5))
    return Scene(image, horizon, light)


def _street(dice: Dice, size: Size) -> Scene:
    width, height = size
    horizon = int(height * dice.between(0.5, 0.72))
    image, light = _sky(dice, size, horizon)
    draw = ImageDraw.Draw(image)
    left = -dice.between(0, 40)
    while left < width:
        wide = dice.between(0.12, 0.35) * width
        if dice.chance(0.85):
            things.add_building(dice, draw, (left, wide), (height, horizon), light)
        left += wide + dice.whole(0, 12)
    road = dim(dice.shade((105, 105, 108)), 0.3 + 0.7 * light)
    draw.rectangle((0, horizon, width, height), fill=dim(road, 1.15))
    middle, spread = dice.between(0.3, 0.7) * width, dice.between(0.4, 0.9) * width
    edge = [(middle - 12, horizon), (middle + 12, horizon)]
    draw.polygon([*edge, (middle + spread, height), (middle - spread, height)], fill=road)
    draw.line([(middle, horizon), (middle, height)], fill=dim((225, 225, 215), light), width=3)
    for _ in range(dice.whole(0, 3)):
        things.add_car(dice, image, horizon, light)
    if dice.chance(0.4):
        things.add_street_lamp(dice, image, horizon, light)
    roughen(dice, image, horizon // 2, zoom=dice.between(0.8, 1.6))
    return Scene(image, horizon, light)


def _room(dice: Dice, size: Size) -> Scene:
    width, height = size
    horizon = int(height * dice.between(0.6, 0.8))
    light = dice.pick((1.0, 0.85, 0.65, 0.4))
    wall, floor = dice.shade(dice.pick(_WALLS)), dice.shade((140, 110, 80), 40)
    image = ramp(size, (dim(wall, light * 0.85), dim(wall, light), dim(wall, light * 0.8)))
    draw = ImageDraw.Draw(image)
    draw.rectangle((0, horizon, width, height), fill=dim(floor, light))
    if dice.chance(0.5):
        x = width * dice.between(0, 0.6)
        draw.polygon(
            [(x, 0), (x + 4, 0), (x + 4, horizon), (x, horizon)], fill=dim(wall, 0.6 * light)
        )
    for _ in range(dice.whole(1, 3)):
        things.add_frame(dice, draw, size, horizon, light)
    for _ in range(dice.whole(1, 4)):
        things.add_furniture(dice, draw, size, horizon, light)
    if dice.chance(0.45):
        things.add_lamp(dice, image, horizon, light)
    roughen(dice, image, dice.pick((0, horizon)), zoom=dice.between(0.8, 2.5))
    return Scene(image, horizon, light)


def _mix(one: Colour, other: Colour, share: float) -> Colour:
    red, green, blue = (int(a + (b - a) * share) for a, b in zip(one, other, strict=True))
    return red, green, blue
