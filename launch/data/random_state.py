"""Random seeds: a function of the place in the training, not of past draws.

A generator's state depends on all that was ever drawn from it, in each loading process for itself,
and could not be saved and restored in other processes. So nothing of it is saved: before a
batch is loaded and before it is trained, the global generators of torch, numpy and ``random`` are
seeded from the job's seed, the epoch, the samples of it that were trained before, and the worker.
A dropout mask or a mirrored picture is the same in a job that was resumed there, and whether
batches are loaded ahead or not, and in the worker or in a loading process.

Not covered are generators that a data set or a model has of its own, and the ``threads``
strategy with several replicas: they draw from the one generator of their process in the order in
which they come, which differs from run to run.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from hashlib import blake2b
from struct import pack

import numpy as np
import torch


class RandomUse(IntEnum):
    """Purpose of random numbers. These values are part of each seed: they must not change."""

    STEP = 1
    TRAINING_SAMPLES = 2
    VALIDATION = 3
    VALIDATION_SAMPLES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedSource:
    """Seeds of one worker, for each place in a training."""

    seed: int
    """The job's."""
    rank: int = 0
    local_rank: int = 0

    def seed_of(self, use: RandomUse, epoch: int, position: int = 0) -> int:
        """Compute the seed of a place, 63 bits: a function of the place alone.

        Args:
            use: Purpose of the random numbers.
            epoch: From 0.
            position: Samples of the epoch that all nodes have done before.
        """
        place = (self.seed, self.rank, self.local_rank, int(use), epoch, position)
        digest = blake2b(pack("<6q", *place), digest_size=8).digest()
        return int.from_bytes(digest, "little") >> 1

    def seed_generators_for(self, use: RandomUse, epoch: int, position: int = 0) -> None:
        """Seed the global generators for a place."""
        seed_generators(self.seed_of(use, epoch, position))


def seed_generators(seed: int) -> None:
    """Seed the global generators of torch, numpy and ``random``, in about 10 microseconds.

    Not by `torch.manual_seed`, which queries every kind of device and takes 370.

    Args:
        seed: 0 to 2**63 - 1.
    """
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.default_generators[torch.cuda.current_device()].manual_seed(seed)
    np.random.seed(seed % 2**32)  # the old generator: it is what data sets use
    random.seed(seed)


@contextmanager
def fixed_random_numbers() -> Iterator[None]:
    """Draw the same in every process, and leave the generators of torch as they were.

    For what every worker makes for itself and must have alike, such as a ``random_split``.
    """
    with torch.random.fork_rng(devices=[]):
        seed_generators(0)
        yield
