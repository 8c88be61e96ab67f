"""What the tests of photos share: a listener, a folder of photos."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.launch.use_cases.heard import Heard


@pytest.fixture
def report():
    return Heard()


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
