"""All-reduce algorithms: which rank sends what to which other. One module each, found by file name.

They are rules alone, and import neither NumPy nor mpi4py.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from launch.system.found_by_file import list_names, load_only_class

if TYPE_CHECKING:
    from launch.gradient_sync.algorithms._base import AllReduceAlgorithm


def algorithm_names() -> list[str]:
    """Return the name of every algorithm, sorted, without importing any."""
    return list_names(Path(__file__).parent)


def load_algorithm(name: str) -> AllReduceAlgorithm:
    """Return the algorithm of that name, one of `algorithm_names`."""
    from launch.gradient_sync.algorithms._base import AllReduceAlgorithm

    return load_only_class(f"{__name__}.{name}", AllReduceAlgorithm)()  # type: ignore[type-abstract]
