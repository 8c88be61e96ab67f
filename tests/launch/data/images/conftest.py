"""What the tests of photos share: an empty cache, a listener, a folder of photos."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image


class Heard:
    """A report that keeps what it hears."""

    def __init__(self):
        self.progressed = []
        self.warnings = []

    def progress(self, done, total, what):
        self.progressed.append((done, total, what))

    def warning(self, message):
        self.warnings.append(message)


@pytest.fixture
def report():
    return Heard()


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Keeps every test's cache apart from the user's."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("DDLPLAN_CACHE", str(folder))
    return folder


@pytest.fixture
def save(tmp_path):
    """Saves small real pictures below ``tmp_path / "data"``."""

    def save_photo(name: str, mode: str = "RGB", size=(40, 30), **options) -> Path:
        file = tmp_path / "data" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        generator = np.random.default_rng(len(name))
        pixels = generator.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
        Image.fromarray(pixels).convert(mode).save(file, **options)
        return file

    return save_photo


@pytest.fixture
def data(save, tmp_path):
    """A folder with twelve photos each of two classes."""
    for number in range(12):
        save(f"cats/{number}.jpg")
        save(f"dogs/{number}.jpg")
    return tmp_path / "data"
