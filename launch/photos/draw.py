"""What is on photo number n? A program of its own, which draws a share of the photos.

It runs apart so that all cores draw at once without a copy of torch in each.
"""

from __future__ import annotations

import signal
import sys
from dataclasses import replace
from pathlib import Path

from PIL import Image, ImageDraw

from launch.photos import things
from launch.photos.camera import expose
from launch.photos.dice import Dice
from launch.photos.fire import add_fire
from launch.photos.scenes import Scene, draw_scene
from launch.photos.smoke import add_clouds, add_fog, add_plume

CLASSES = ("fire", "none", "smoke")
QUALITY = 85


def draw_photo(seed: int, number: int) -> tuple[str, Image.Image]:
    """Draw one photo; it depends on the two numbers alone. Classes take turns."""
    kind = CLASSES[number % len(CLASSES)]
    dice = Dice(seed, number)
    size = dice.whole(360, 440), dice.whole(270, 330)
    scene = draw_scene(dice, size if dice.chance(0.9) else size[::-1])
    if dice.chance(0.25):
        scene = replace(scene, image=add_clouds(dice, scene))
    if dice.chance(0.2):
        place = dice.between(0, scene.image.width), dice.between(scene.horizon, scene.image.height)
        span = dice.between(30, 120)
        things.add_stones(dice, ImageDraw.Draw(scene.image), place, span, scene.light)
    if kind == "fire":
        image = _burn(dice, scene)
    elif kind == "smoke":
        image = add_plume(dice, scene, None, dice.between(0.75, 1.0))
    else:
        image = add_fog(dice, scene) if dice.chance(0.25) else scene.image
    if dice.chance(0.5):
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return kind, expose(dice, image)


def photo_name(seed: int, number: int) -> str:
    """Name a photo so that no two sets share a name."""
    return f"{seed:x}-{number:05d}.jpg"


def _burn(dice: Dice, scene: Scene) -> Image.Image:
    """Draw fire, most of them with smoke behind it, some with smoke before it."""
    source = add_fire(dice, scene)
    if dice.chance(0.5):
        return add_plume(dice, scene, source, dice.between(0.2, 0.75))
    return scene.image


def main() -> None:
    """Draw photos ``first``, ``first + step``, ... below ``stop`` and write a line after each.

    Nobody reads the lines any more when the program that started this one is gone: the next
    write then ends this one too.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the starter hears it as well, and stops this
    folder = Path(sys.argv[1])
    seed, first, stop, step = (int(text) for text in sys.argv[2:])
    for number in range(first, stop, step):
        kind, image = draw_photo(seed, number)
        image.save(folder / kind / photo_name(seed, number), quality=QUALITY)
        sys.stdout.write("\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
