"""One painted photo, by its number; run as a program, a share of a set's photos.

Hosts that train together compare the sizes of their files. So a photo depends on its numbers
alone, and on arithmetic that rounds alike on every processor: no ``exp``, no Fourier transform.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from random import Random

import numpy as np
from PIL import Image, ImageChops, ImageFilter, ImageOps

from launch.use_cases._painted import scene

CLASSES = ("fire", "none", "smoke")
_JPEG_QUALITY = 85


def paint_photo(seed: int, number: int) -> tuple[str, Image.Image]:
    """Paint a photo and return it with its class; classes take turns."""
    label = CLASSES[number % len(CLASSES)]
    rng = Random(f"{seed} {number}")  # noqa: S311 - a picture, not a secret
    size = rng.randint(360, 440), rng.randint(270, 330)
    image = scene.paint_scene(rng, size if rng.random() < 0.9 else size[::-1])
    x, y = rng.uniform(0.1, 0.9) * image.width, rng.uniform(0.55, 0.95) * image.height
    if label == "fire":
        tall = _add_fire(rng, image, x, y)
        if rng.random() < 0.5:
            _add_smoke(rng, image, x, y - 0.75 * tall, rng.uniform(0.2, 0.75))
    elif label == "smoke":
        _add_smoke(rng, image, x, y, rng.uniform(0.75, 1))
    for _ in range(rng.randint(0, 2)):
        scene.add_shape(rng, image, image.height * rng.uniform(0.8, 1.2))
    return label, _expose(rng, image)


def _add_fire(rng: Random, image: Image.Image, x: float, y: float) -> int:
    """Add flames that stand on column ``x`` and row ``y``; return how many rows high they are."""
    tall = int(image.height * rng.triangular(0.14, 0.8, 0.3))
    wide = int(tall * rng.uniform(0.6, 1.5))
    reach = max(tall, wide) * rng.uniform(0.8, 1.4)
    scene.add_glow(image, x, y - 0.3 * tall, reach, (255, 120, 35), rng.uniform(0.1, 0.6))
    across, up = np.meshgrid(np.linspace(-1, 1, 64), np.linspace(1, 0, 80))
    tongues = np.asarray(scene.noise(rng, (64, 80), rng.uniform(0.15, 0.5), flat=0.25)) / 255
    frayed = np.asarray(scene.noise(rng, (64, 80), rng.uniform(0.25, 0.6))) / 255 - 0.5
    heat = (1 - across * across) * (1.6 * tongues - 0.2) - up + frayed * up
    heat *= 2 * np.clip(10 - 10 * up, 0, 1) * np.clip(10 * up + 0.2, 0, 1)
    flames = scene.grey_levels(heat, (wide, tall))
    brightest = (255, 250, rng.randint(30, 200))
    colours = ImageOps.colorize(flames, (110, 10, 5), brightest, (255, 135, 20), midpoint=110)
    corner = int(x - wide / 2), int(y - tall)
    image.paste(colours, corner, flames.point(lambda value: 4 * value - 80))
    return tall


def _add_smoke(rng: Random, image: Image.Image, x: float, y: float, opacity: float) -> None:
    """Add a plume that rises from column ``x`` and row ``y``, widens and drifts."""
    columns, rows = np.meshgrid(np.linspace(0, 1, 80), np.linspace(0, 1, 60))
    risen = y / image.height - rows
    above = np.clip(risen, 0, 1)
    wind, curl = rng.uniform(-1, 1), np.asarray(scene.noise(rng, (80, 60), 0.5)) / 255 - 0.5
    width = rng.uniform(0.05, 0.15) + rng.uniform(0.4, 1) * above
    aside = (columns - x / image.width - (wind + rng.uniform(0.1, 0.6) * curl) * above) / width
    density = np.clip(1 - aside * aside, 0, 1) * np.clip(18 * risen + 0.5, 0, 1)
    density *= (1.5 - rng.uniform(0.2, 0.9) * above) * opacity
    scene.add_veil(rng, image, scene.grey_levels(density, image.size))


def _expose(rng: Random, image: Image.Image) -> Image.Image:
    """Add what the camera does: exposure, tint, haze, softness and grain."""
    gain, warmth, haze = rng.uniform(0.75, 1.25), rng.uniform(-0.1, 0.1), rng.uniform(0, 20)
    tints = (gain * (1 + warmth), gain, gain * (1 - warmth))
    image = image.point([min(255, int(haze + tint * v)) for tint in tints for v in range(256)])
    if rng.random() < 0.2:
        image = image.filter(ImageFilter.BoxBlur(rng.uniform(0.4, 1.2)))
    grain = Image.frombytes("L", image.size, rng.randbytes(image.width * image.height))
    strength = rng.choice((0.01, 0.025, 0.04, 0.075))
    grain = grain.point(lambda value: 128 + strength * (value - 128))
    return ImageChops.add(image, grain.convert("RGB"), 1, -128)


def main() -> None:
    """Save photos ``first``, ``first + step``, ... below ``stop`` and write a byte after each.

    Once the program that started this one is gone, nobody reads: the next write ends this one too.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the starter gets it as well, and ends this one
    folder = Path(sys.argv[1])
    seed, first, stop, step = (int(text) for text in sys.argv[2:])
    for number in range(first, stop, step):
        label, image = paint_photo(seed, number)
        # The seed is in the name: no two sets have a photo of one name.
        image.save(folder / label / f"{seed:x}-{number:05d}.jpg", quality=_JPEG_QUALITY)
        sys.stdout.write("\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
