"""What the tests of data share: a cache of their own, pictures that are quickly decoded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

SIDE = 8


class Squares(torch.utils.data.Dataset):
    """Pictures that are computed, and counted when they are; mirrored at random.

    As a user would write a data set of his own: it inherits nothing of ddlplan.
    """

    def __init__(self, size: int, key: str = "1", log: Path | None = None) -> None:
        self.size = size
        self.key = key
        self._log = log
        self.decoded: list[int] = []

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        pixels = torch.from_numpy(self.pixels(index)).permute(2, 0, 1)[None]
        return self.finish(pixels, self.draw(1))[0], self.target(index)

    def pixels_name(self):
        return "squares"

    def pixels_key(self):
        return self.key

    def pixel_shape(self):
        return SIDE, SIDE, 3

    def pixels(self, index):
        self.decoded.append(index)
        if self._log is not None:
            with self._log.open("a") as log:
                log.write(f"{index}\n")
        generator = np.random.default_rng(index)
        return generator.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)

    def target(self, index):
        return {"class": index % 3, "name": f"square {index}"}

    def draw(self, count):
        return torch.rand(count) < 0.5

    def finish(self, pixels, drawn):
        mirrored = drawn.view(-1, 1, 1, 1)
        return torch.where(mirrored, pixels.flip(3), pixels).float() / 255


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.setenv("DDLPLAN_CACHE", str(folder))
    return folder


@pytest.fixture
def squares():
    """Makes a data set of squares."""
    return Squares
