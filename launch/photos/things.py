"""What stands about in a scene? Some of it glows or is orange, and yet nothing burns."""

from __future__ import annotations

from PIL import Image, ImageDraw

from launch.photos.dice import Colour, Dice
from launch.photos.textures import Size, add_glow

Draw = ImageDraw.ImageDraw

_PAINTS: tuple[Colour, ...] = (
    (170, 40, 35), (225, 120, 30), (240, 200, 60), (60, 90, 150), (235, 235, 232), (40, 42, 48),
    (120, 125, 130), (70, 110, 80), (150, 105, 70),
)  # fmt: skip
_WARM: tuple[Colour, ...] = ((255, 190, 90), (255, 160, 60), (255, 220, 150), (255, 240, 210))


def add_sun(dice: Dice, image: Image.Image, horizon: int, light: float) -> None:
    """Put the sun, or late in the day an orange ball, above the horizon."""
    x, y = image.width * dice.between(0.1, 0.9), horizon * dice.between(0.35, 0.95)
    colour = (255, 245, 215) if light > 0.6 else dice.pick(((255, 150, 50), (255, 200, 90)))
    radius = dice.between(6, 22)
    add_glow(image, (x, y), radius * dice.between(3, 9), colour, 0.75)
    ImageDraw.Draw(image).ellipse((x - radius, y - radius, x + radius, y + radius), fill=colour)


def add_tree(dice: Dice, draw: Draw, size: Size, horizon: int, light: float) -> None:
    """Plant a fir or a round tree, some in autumn's colours."""
    leaves = dice.pick(((50, 85, 40), (70, 100, 45), (40, 65, 45), (200, 105, 30), (190, 150, 50)))
    colour = _lit(dice.shade(leaves), light)
    foot = horizon + dice.between(0, 0.5) * (size[1] - horizon)
    tall = size[1] * dice.between(0.12, 0.4)
    x, half = dice.between(0, size[0]), tall * dice.between(0.18, 0.35)
    draw.rectangle((x - 2, foot - tall * 0.4, x + 2, foot), fill=_lit((80, 60, 45), light))
    if dice.chance(0.5):
        for low, up in ((0.15, 0.6), (0.35, 0.8), (0.55, 1.0)):
            span = half * (1.25 - low)
            base, tip = foot - tall * low, foot - tall * up
            draw.polygon([(x - span, base), (x, tip), (x + span, base)], fill=colour)
        return
    for _ in range(7):
        cx, cy = x + half * dice.between(-0.8, 0.8), foot - tall * dice.between(0.5, 0.9)
        r = half * dice.between(0.45, 0.75)
        draw.ellipse((cx - r, cy - r, cx + r, cy + r), fill=dice.shade(colour, 10))


def add_house(dice: Dice, draw: Draw, size: Size, horizon: int, light: float) -> None:
    """Build a house with a roof, a door and windows."""
    wide, tall = size[0] * dice.between(0.12, 0.3), size[1] * dice.between(0.1, 0.22)
    x, foot = dice.between(0, size[0] - wide), horizon + dice.between(0.02, 0.2) * size[1]
    wall = _lit(dice.shade(dice.pick(((215, 205, 190), (170, 110, 85), (190, 190, 185)))), light)
    roof = _lit(dice.shade(dice.pick(((140, 65, 50), (80, 75, 75), (165, 85, 45)))), light)
    draw.rectangle((x, foot - tall, x + wide, foot), fill=wall)
    eaves, ridge = foot - tall, foot - tall * dice.between(1.5, 1.9)
    draw.polygon([(x - 6, eaves), (x + wide / 2, ridge), (x + wide + 6, eaves)], fill=roof)
    for place in (0.12, 0.42, 0.72):
        pane = dice.pick(_WARM) if light < 0.6 and dice.chance(0.5) else _lit((70, 85, 105), light)
        left = x + wide * place
        draw.rectangle(
            (left, foot - tall * 0.75, left + wide * 0.16, foot - tall * 0.35), fill=pane
        )


def add_building(
    dice: Dice, draw: Draw, across: tuple[float, float], rows: tuple[int, int], light: float
) -> None:
    """Build a block with rows of windows; at night some are lit."""
    (left, wide), (height, foot) = across, rows
    top = foot - height * dice.between(0.2, 0.6)
    wall = dice.pick(
        ((165, 150, 135), (130, 130, 135), (175, 120, 95), (200, 195, 185), (95, 95, 105))
    )
    draw.rectangle((left, top, left + wide, foot), fill=_lit(dice.shade(wall), light))
    dark, step = _lit((75, 85, 100), light), dice.between(12, 22)
    y = top + step / 2
    while y < foot - step * 0.6:
        x = left + step / 2
        while x < left + wide - step * 0.6:
            lit = light < 0.6 and dice.chance(0.35)
            draw.rectangle(
                (x, y, x + step / 2, y + step * 0.6), fill=dice.pick(_WARM) if lit else dark
            )
            x += step
        y += step * 1.2


def add_car(dice: Dice, image: Image.Image, horizon: int, light: float) -> None:
    """Park a car; in the dark its lamps are on."""
    draw = ImageDraw.Draw(image)
    near = dice.between(0.1, 0.9)
    long = image.width * (0.08 + 0.3 * near)
    x, foot = (
        dice.between(-0.3 * long, image.width - 0.7 * long),
        horizon + near * (image.height - horizon) * 0.8,
    )
    paint, high = _lit(dice.shade(dice.pick(_PAINTS)), 0.3 + 0.7 * light), long * 0.26
    draw.rounded_rectangle((x, foot - high, x + long, foot - high * 0.15), high * 0.3, fill=paint)
    cabin = [(0.2, 0.95), (0.32, 1.6), (0.68, 1.6), (0.84, 0.95)]
    draw.polygon(
        [(x + long * a, foot - high * b) for a, b in cabin], fill=_lit((60, 70, 85), light)
    )
    for place in (0.2, 0.8):
        cx, r = x + long * place, high * 0.32
        draw.ellipse((cx - r, foot - r * 1.6, cx + r, foot + r * 0.4), fill=(22, 22, 24))
    if light < 0.6:
        add_glow(image, (x, foot - high * 0.6), long * 0.25, (255, 235, 190), 0.9)
        add_glow(image, (x + long, foot - high * 0.6), long * 0.15, (230, 40, 30), 0.9)


def add_street_lamp(dice: Dice, image: Image.Image, horizon: int, light: float) -> None:
    """Put up a lamp post, which shines when it is dark."""
    x, top = dice.between(0.05, 0.95) * image.width, horizon * dice.between(0.2, 0.6)
    ImageDraw.Draw(image).rectangle((x - 2, top, x + 2, horizon + 20), fill=(50, 50, 54))
    if light < 0.7:
        colour = dice.pick(_WARM)
        add_glow(image, (x, top), dice.between(20, 60), colour, 0.8)
        add_glow(image, (x, top), dice.between(5, 10), (255, 250, 230), 1.0)


def add_frame(dice: Dice, draw: Draw, size: Size, horizon: int, light: float) -> None:
    """Hang a picture or break a window into a wall."""
    wide, tall = size[0] * dice.between(0.1, 0.28), size[1] * dice.between(0.12, 0.35)
    x, y = dice.between(0, size[0] - wide), dice.between(0.04, 0.3) * size[1]
    inside = dice.pick(((205, 225, 245), (60, 75, 110), *_PAINTS))
    draw.rectangle((x, y, x + wide, y + tall), fill=_lit(inside, 0.3 + 0.7 * light))
    rim = _lit(dice.pick(((240, 240, 236), (90, 65, 45), (60, 60, 60))), light)
    draw.rectangle((x, y, x + wide, y + tall), outline=rim, width=dice.whole(2, 5))
    if dice.chance(0.4):
        draw.line([(x + wide / 2, y), (x + wide / 2, y + tall)], fill=rim, width=3)


def add_furniture(dice: Dice, draw: Draw, size: Size, horizon: int, light: float) -> None:
    """Put a cupboard, a table or a sofa against the wall."""
    wide, tall = size[0] * dice.between(0.12, 0.4), size[1] * dice.between(0.1, 0.38)
    x, foot = (
        dice.between(-0.2 * wide, size[0] - 0.8 * wide),
        horizon + dice.between(0, 0.15) * size[1],
    )
    paint = _lit(dice.shade(dice.pick(_PAINTS), 30), 0.35 + 0.6 * light)
    kind = dice.whole(0, 2)
    if kind == 0:
        draw.rectangle((x, foot - tall, x + wide, foot), fill=paint)
        for share in (0.33, 0.66):
            y = foot - tall * share
            draw.line([(x, y), (x + wide, y)], fill=_lit(paint, 0.6), width=2)
    elif kind == 1:
        draw.rectangle((x, foot - tall, x + wide, foot - tall * 0.85), fill=paint)
        for leg in (x, x + wide - 6):
            draw.rectangle((leg, foot - tall * 0.85, leg + 6, foot), fill=_lit(paint, 0.75))
    else:
        draw.rounded_rectangle((x, foot - tall, x + wide, foot), 10, fill=_lit(paint, 0.8))
        draw.rounded_rectangle((x - 8, foot - tall * 0.5, x + wide + 8, foot), 10, fill=paint)


def add_lamp(dice: Dice, image: Image.Image, horizon: int, light: float) -> None:
    """Light a lamp with a shade."""
    x, y = dice.between(0.1, 0.9) * image.width, horizon * dice.between(0.15, 0.7)
    half, colour = dice.between(10, 26), dice.pick(_WARM)
    add_glow(image, (x, y), half * dice.between(3, 7), colour, dice.between(0.4, 0.8))
    draw = ImageDraw.Draw(image)
    draw.line([(x, y), (x, 0 if dice.chance(0.5) else horizon)], fill=(60, 55, 50), width=3)
    shade = [(x - half * 0.6, y - half * 0.7), (x + half * 0.6, y - half * 0.7)]
    draw.polygon([*shade, (x + half, y + half * 0.6), (x - half, y + half * 0.6)], fill=colour)


def add_stones(
    dice: Dice, draw: Draw, foot: tuple[float, float], span: float, light: float
) -> None:
    """Lay stones or logs into a row; what stands behind is partly hidden."""
    for _ in range(dice.whole(2, 5)):
        x, y = foot[0] + span * dice.between(-0.6, 0.6), foot[1] + span * dice.between(-0.08, 0.08)
        half, high = span * dice.between(0.12, 0.35), span * dice.between(0.06, 0.2)
        paint = _lit(dice.shade(dice.pick(((85, 80, 75), (70, 52, 40), (110, 105, 98)))), light)
        draw.rounded_rectangle((x - half, y - high, x + half, y + high), high * 0.9, fill=paint)


def _lit(colour: Colour, light: float) -> Colour:
    red, green, blue = (int(part * (0.12 + 0.88 * light)) for part in colour)
    return red, green, blue
