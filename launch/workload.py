"""Workload: what is to be trained."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A use case with its data and its seed, the same for search, job and worker."""

    use_case: str
    """Built-in name, ``package.module:object`` or ``/absolute/file.py:object``, as
    `launch.use_cases.resolve` spells it."""

    data: str | None = None
    """Absolute path of its data; ``None`` where the use case finds them by itself."""

    seed: int = 0
    """Of the weights, the order of the samples, and the search."""

    @property
    def data_path(self) -> Path | None:
        """The data as a path."""
        return Path(self.data) if self.data else None
