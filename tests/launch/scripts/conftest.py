"""What the tests of scripts share: a folder for temporary files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A folder with a short name: scripts of a long one get theirs elsewhere, for their sockets."""
    with TemporaryDirectory() as name:
        yield Path(name)
