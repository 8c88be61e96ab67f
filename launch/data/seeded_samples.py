"""Which random numbers does a data set draw for a batch? Those that the batch's seed says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch.utils.data import Dataset

from launch.data.split import Indices
from launch.workers.random_state import seed_generators


@dataclass(frozen=True, slots=True)
class SeededBatch:
    """What a loader is asked for."""

    indices: Indices
    seed: int


class SeededSamples(Dataset[Any]):
    """A data set that is read by batches, each after the generators were seeded for it.

    Seeding and reading happen in the same process, whichever torch's loader has read.
    """

    def __init__(self, source: Dataset[Any]) -> None:
        self._source = source

    def __len__(self) -> int:
        return len(self._source)  # type: ignore[arg-type]

    def __getitems__(self, batch: SeededBatch) -> Any:
        """Give the samples of a batch as the data set itself would; torch's loader calls this."""
        seed_generators(batch.seed)
        give_together = getattr(self._source, "__getitems__", None)
        if give_together is not None:
            return give_together(batch.indices)
        return [self._source[index] for index in batch.indices]
