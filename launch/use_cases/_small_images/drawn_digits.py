"""Drawn digits in the form of MNIST or CIFAR-10, for those who have no files of these.

Each digit is bent, tilted, moved and scaled at random, with a piece of another one beside it and
noise over it, so that a linear model tells few of them apart and a convolutional network most.
Coloured ones are darker or lighter than what is behind them.

Hosts that train together must draw the same. So a digit depends on its seed alone, on a generator
whose numbers numpy keeps, and on whole numbers: nothing that processors round in different ways.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray

from launch.reports import PreparationReporter
from launch.use_cases._small_images.labelled_images import ImageSet, LabelledImages

VERSION = 1
"""Goes up with every change to what is drawn, so that an old set is not taken for a new one."""

_Point = tuple[float, float]
_STROKES: tuple[tuple[tuple[_Point, ...], ...], ...] = (
    (((5, 1), (8, 3), (8, 7), (5, 9), (2, 7), (2, 3), (5, 1)),),
    (((3, 3), (5.5, 1), (5.5, 9)),),
    (((2, 3), (4, 1), (7, 1.5), (7.5, 4), (2, 9), (8, 9)),),
    (((2, 1.5), (7, 1.5), (4.5, 4.5), (7.5, 6), (7, 8.5), (4, 9), (2, 8)),),
    (((6.5, 9), (6.5, 1), (2, 6.5), (8.5, 6.5)),),
    (((7.5, 1), (3, 1), (2.5, 4.5), (6, 4), (8, 6.5), (6, 9), (2, 8.5)),),
    (((7, 1), (4, 3), (2.5, 6.5), (4, 9), (7, 8.5), (7.5, 6), (5, 5), (2.5, 6.5)),),
    (((2, 1.5), (8, 1.5), (4.5, 9)),),
    (
        ((5, 5), (2.5, 3), (5, 1), (7.5, 3), (5, 5)),
        ((5, 5), (2, 7), (5, 9), (8, 7), (5, 5)),
    ),
    (((7.5, 4), (5, 5), (2.5, 3), (5, 1), (7.5, 2), (7.5, 4), (6.5, 9)),),
)
"""Lines of each digit, in a square of 10 x 10, rows downwards."""

_HANDS = 48
"""Ways in which each digit is written."""

_SIDE = 64
"""Pixels of a written digit before it is scaled, each way."""

_ONE = 256
"""What stands for 1 in whole numbers."""

_CHUNK = 2000
"""Images that are drawn at once."""

NUM_CLASSES = len(_STROKES)


def make_drawn_set(
    form: str, *, side: int, colours: bool, num_train: int, num_test: int
) -> ImageSet:
    """Describe a set of drawn digits.

    Args:
        form: Whose form it has.
        side: Height and width.
        colours: Three channels, in place of white on black.
        num_train: Images for training.
        num_test: Images for testing.
    """

    def make(report: PreparationReporter) -> tuple[LabelledImages, LabelledImages]:
        hands = _write_digits(RandomState(_SIDE))
        total, parts, done = num_train + num_test, [], 0
        for count in (num_train, num_test):
            pixels = np.empty((count, side, side, 3 if colours else 1), np.uint8)
            labels = np.empty(count, np.uint8)
            for low in range(0, count, _CHUNK):
                here = slice(low, min(low + _CHUNK, count))
                rng = RandomState([VERSION, side, done])
                labels[here], pixels[here] = _draw(rng, hands, here.stop - low, side, colours)
                done += here.stop - low
                report.progress(done, total, f"drawing digits in the form of {form}")
            parts.append(LabelledImages(pixels, labels))
        return parts[0], parts[1]

    about = f"{VERSION} {side} {colours} {num_train} {num_test}"
    return ImageSet(name=f"drawn digits like {form}", key=about, make=make, is_generated=True)


def _write_digits(rng: RandomState) -> NDArray[np.int32]:
    """Write each digit in many ways: classes x ways x rows x columns, from 0 to 255."""
    hands = np.zeros((NUM_CLASSES, _HANDS, _SIDE, _SIDE), np.int32)
    for label, strokes in enumerate(_STROKES):
        for hand in range(_HANDS):
            pen = rng.randint(16, 30) / 10
            for stroke in strokes:
                bent = np.array(stroke) * _SIDE / 10 + rng.randint(-45, 46, (len(stroke), 2)) / 10
                if stroke[0] == stroke[-1]:
                    bent[-1] = bent[0]
                ink = _draw_lines(bent, pen)
                np.maximum(hands[label, hand], ink, out=hands[label, hand])
    return hands


def _draw_lines(points: NDArray[np.float64], pen: float) -> NDArray[np.int32]:
    """Draw lines from point to point."""
    rows, columns = np.mgrid[0:_SIDE, 0:_SIDE] + 0.5
    nearest = np.full((_SIDE, _SIDE), np.inf)
    for (x0, y0), (x1, y1) in pairwise(points):
        across, down = x1 - x0, y1 - y0
        length2 = max(across * across + down * down, 1e-9)
        along = np.clip(((columns - x0) * across + (rows - y0) * down) / length2, 0, 1)
        aside, below = columns - (x0 + along * across), rows - (y0 + along * down)
        nearest = np.minimum(nearest, np.sqrt(aside * aside + below * below))
    return np.asarray(np.clip((pen + 1 - nearest) * 128, 0, 255), np.int32)


def _draw(
    rng: RandomState, hands: NDArray[np.int32], count: int, side: int, colours: bool
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Draw some images; give their labels and pixels."""
    labels = rng.randint(0, NUM_CLASSES, count)
    ink = _place(rng, hands, labels, side, shift=side // 7, aside=0)
    others = _place(rng, hands, rng.randint(0, NUM_CLASSES, count), side, shift=3, aside=side // 2)
    ink = np.maximum(ink, others)
    if colours:
        pixels = _colour(rng, ink, side)
    else:
        strength = rng.randint(130, _ONE, (count, 1, 1), np.int32)
        pixels = (ink * strength // _ONE)[..., None]
    pixels += rng.randint(-24, 25, pixels.shape, np.int8)
    return labels.astype(np.uint8), np.clip(pixels, 0, 255).astype(np.uint8)


def _place(
    rng: RandomState,
    hands: NDArray[np.int32],
    labels: NDArray[np.int64],
    side: int,
    *,
    shift: int,
    aside: int,
) -> NDArray[np.int32]:
    """Put a digit into each image: images x rows x columns, from 0 to 255.

    Args:
        rng: Draws how.
        hands: From `_write_digits`.
        labels: Which digits.
        side: Of the images.
        shift: Pixels by which it is moved, at most, to each side.
        aside: Pixels by which it is moved to the left or to the right beforehand.
    """
    count = len(labels)
    # Coordinates in a written digit of each pixel, counted from the centres of both.
    scale = _ONE * _SIDE // side
    along = rng.randint(scale * 8 // 10, scale * 14 // 10, (2, count, 1, 1), np.int32)
    slant = rng.randint(-scale * 4 // 10, scale * 4 // 10 + 1, (2, count, 1, 1), np.int32)
    moved = rng.randint(-shift * 8, shift * 8 + 1, (2, count, 1, 1), np.int32)
    moved[0] += aside * 8 * (2 * rng.randint(0, 2, (count, 1, 1), np.int32) - 1)
    columns, rows = (
        np.arange(side, dtype=np.int32).reshape(shape) * 8 - 4 * (side - 1)
        for shape in ((1, 1, side), (1, side, 1))
    )
    right, down = columns - moved[0], rows - moved[1]
    x = (along[0] * right + slant[0] * down) // (8 * _ONE) + _SIDE // 2
    y = (along[1] * down + slant[1] * right) // (8 * _ONE) + _SIDE // 2
    is_inside = (x >= 0) & (x < _SIDE) & (y >= 0) & (y < _SIDE)
    which = (labels * _HANDS + rng.randint(0, _HANDS, count)).reshape(-1, 1, 1) * _SIDE * _SIDE
    places = which + np.where(is_inside, y * _SIDE + x, 0)
    return np.where(is_inside, hands.reshape(-1)[places], 0).astype(np.int32)


def _colour(rng: RandomState, ink: NDArray[np.int32], side: int) -> NDArray[np.int32]:
    """Paint ink in a colour of its own on ground whose colour changes from corner to corner."""
    count = len(ink)
    ground, slope = (
        rng.randint(low, high, (count, 1, 1, 3), np.int32) for low, high in ((60, 200), (-100, 101))
    )
    across = (np.arange(side, dtype=np.int32) * _ONE // side - _ONE // 2).reshape(1, 1, side, 1)
    ground = ground + slope * across // _ONE
    is_light = rng.randint(0, 2, (count, 1, 1, 1), np.int32)
    contrast = (2 * is_light - 1) * rng.randint(40, 140, (count, 1, 1, 3), np.int32)
    painted: NDArray[np.int32] = ground + contrast * ink[..., None] // _ONE
    return painted
