"""Loading of samples from a data set into the training loop."""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from torch.utils.data import DataLoader, Dataset

from launch.data.batch import Batch, SizedBatch
from launch.data.decoded_pictures import DecodedPictures
from launch.data.device_pictures import DevicePictures
from launch.data.look_ahead import look_ahead
from launch.data.random_state import seed_generators
from launch.data.split import BatchSize, Indices, Work
from launch.system.process_end import die_with_parent


@dataclass(frozen=True, slots=True)
class SeededBatch:
    """Batch that a loader is to read."""

    indices: Indices
    seed: int


class ReadAhead:
    """Number of batches that loader processes have read and that were not used yet.

    A trial whose first steps use up what was read before they began seems faster than a training.
    """

    def __init__(self) -> None:
        # Inherited by loader processes, which add to it: no lock, and no file that could be left.
        self._read = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._count = 0
        weakref.finalize(self, os.close, self._read)

    def add(self) -> None:
        """Note, in whichever process has read it, that a batch is ready."""
        os.eventfd_write(self._read, 1)

    def take(self) -> None:
        """Note that a batch is used."""
        self._count -= 1

    @property
    def count(self) -> int:
        """Batches that are ready."""
        with contextlib.suppress(BlockingIOError):
            self._count += os.eventfd_read(self._read)
        return max(0, self._count)


class SeededDataset(Dataset[Any]):
    """A data set that is read by batches, each after the generators were seeded for it.

    Seeding and reading happen in the same process, whichever torch's loader has read.
    """

    def __init__(self, source: Dataset[Any], read_ahead: ReadAhead | None = None) -> None:
        self._source = source
        self._read_ahead = read_ahead

    def __len__(self) -> int:
        return len(self._source)  # type: ignore[arg-type]

    def __getitems__(self, batch: SeededBatch) -> Any:
        """Return the samples of a batch as the data set itself would; torch's loader calls this."""
        seed_generators(batch.seed)
        read_batch = getattr(self._source, "__getitems__", None)
        if read_batch is not None:
            samples = read_batch(batch.indices)
        else:
            samples = [self._source[index] for index in batch.indices]
        if self._read_ahead is not None:
            self._read_ahead.add()
        return samples


def load(
    dataset: Dataset[Any],
    work: Work,
    *,
    loader_workers: int,
    pin_memory: bool = False,
    seeds: Iterator[int] | None = None,
    read_ahead: ReadAhead | None = None,
    collate: Callable[[list[Any]], Any] | None = None,
) -> Iterator[SizedBatch]:
    """Read the share of each batch from the data set.

    Args:
        dataset: The samples.
        work: Which of them the share of each batch has, and the size of the whole batch.
        loader_workers: Processes that read; 0 reads in this one.
        pin_memory: Whether batches are put where a GPU can fetch them from.
        seeds: One for each batch of ``work``, for the random numbers in its samples; taken right
            after the batch.
        read_ahead: Counts the batches that are read before they are used; only with ``seeds``.
        collate: Makes a batch of samples; torch's default collation where left out.

    Yields:
        The collated share, ``None`` where it is empty, and the size of the whole batch.
    """
    sizes: list[tuple[bool, BatchSize]] = []

    def keys() -> Iterator[Any]:
        for indices, size in work:
            sizes.append((bool(indices), size))
            seed = None if seeds is None else next(seeds)
            if indices:
                yield indices if seed is None else SeededBatch(indices, seed)

    if isinstance(dataset, DecodedPictures) and dataset.is_large:
        work = look_ahead(work, dataset)  # without loader processes: a plan has none for these
    gives_batches = isinstance(dataset, (DecodedPictures, DevicePictures))
    owner = os.getpid()
    loader: DataLoader[Any] = DataLoader(
        dataset if seeds is None else SeededDataset(dataset, read_ahead),
        batch_sampler=keys(),
        collate_fn=(lambda batch: batch) if gives_batches else collate,
        num_workers=loader_workers,
        pin_memory=pin_memory,
        # Other threads of this worker are idle while it forks, and a loader leaves the GPU alone;
        # a fresh interpreter would import torch again for every trial.
        multiprocessing_context="fork" if loader_workers else None,
        # By itself a loader process would look every 5 s only whether its worker was killed.
        worker_init_fn=lambda _: die_with_parent(owner),
    )
    for batch in loader:
        while not sizes[0][0]:
            yield None, sizes.pop(0)[1]
        if read_ahead is not None:
            read_ahead.take()
        yield batch, sizes.pop(0)[1]
    for _, size in sizes:
        yield None, size


def read_batch(
    dataset: Dataset[Any], indices: Indices, collate: Callable[[list[Any]], Any] | None
) -> Batch:
    """Read one batch in this process."""
    size = BatchSize(len(indices), len(indices))
    ((batch, _),) = load(dataset, iter([(indices, size)]), loader_workers=0, collate=collate)
    assert batch is not None, "it has samples"
    return batch
