"""Colours of the pages can be told from their backgrounds, in light and in dark.

Contrast is that of WCAG 2.2: https://www.w3.org/TR/WCAG22/#dfn-contrast-ratio. Texts need 4.5 to 1,
what is drawn 3 to 1.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import planner.report.figures
import planner.service

FIGURES = (Path(planner.report.figures.__path__[0]) / "figures.css").read_text()
SITE = (Path(planner.service.__path__[0]) / "static" / "site.css").read_text()
BACKGROUNDS = ("paper", "card", "sunk")
TEXTS = ("ink", "soft", "accent", "good", "warn", "bad")
LINES = ("line", "quiet", *(f"s{number}" for number in range(6)))


def colours(*, is_dark: bool) -> dict[str, str]:
    """Give the colours of a scheme by their names."""
    light, dark = FIGURES.split("@media (prefers-color-scheme: dark)")
    block = dark.split("\n}\n")[0] if is_dark else light
    return dict(re.findall(r"--([a-z0-9-]+): (#[0-9a-f]{6});", block))


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("is_dark", [False, True], ids=["light", "dark"])
def test_texts_and_lines_stand_out(is_dark):
    known = colours(is_dark=is_dark)
    wanted = {(text, ground): 4.5 for text in TEXTS for ground in BACKGROUNDS}
    wanted |= {(line, ground): 3.0 for line in LINES for ground in ("paper", "card")}
    found = {pair: round(contrast(known[pair[0]], known[pair[1]]), 2) for pair in wanted}
    assert {pair: ratio for pair, ratio in found.items() if ratio < wanted[pair]} == {}


def test_both_schemes_have_the_same_names():
    assert colours(is_dark=False).keys() == colours(is_dark=True).keys()


def test_curves_differ_by_their_dashes_too():
    dashes = re.findall(r"svg\.plot \.curve\.d\d \{ stroke-dasharray: ([\d ]+); \}", FIGURES)
    assert len(dashes) == 5  # d0 is a plain line
    assert len(set(dashes)) == 5


def test_every_colour_is_named_once():
    """Whoever uses another one has to think of the other scheme, and of its contrast."""
    used = re.findall(r"#[0-9a-fA-F]{3,8}\b|rgb|hsl", SITE)
    assert used == []
    variables = set(re.findall(r"var\(--([a-z0-9-]+)\)", FIGURES + SITE))
    assert variables <= colours(is_dark=False).keys()
