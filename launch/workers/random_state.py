"""What is random in a step? Only what its place in the training says, not what was drawn before.

A generator's state depends on all that was ever drawn from it, in each loading process for itself,
and could not be saved and taken up again in other processes. So nothing of it is saved: before a
batch is loaded and before it is trained, the global generators of torch, numpy and ``random`` are
seeded from the job's seed, the epoch, the samples of it that were trained before, and who draws.
A dropout mask or a mirrored picture is the same in a job that was resumed there, and whether
batches are loaded ahead or not, and in the worker or in a loading process.

Beyond this reach are generators that a data set or a model keeps for itself, and the ``threads``
strategy with several replicas: they draw from the one generator of their process in the order in
which they come, which differs from run to run.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import IntEnum
from hashlib import blake2b
from struct import pack

import numpy as np
import torch


class Draw(IntEnum):
    """What is drawn for. Numbers are part of what a seed is made of: they stay."""

    STEP = 1
    TRAINING_SAMPLES = 2
    VALIDATION = 3
    VALIDATION_SAMPLES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Dice:
    """Gives one worker the seed of each place in a training."""

    seed: int
    """The job's."""
    rank: int = 0
    local_rank: int = 0

    def seed_of(self, draw: Draw, epoch: int, position: int = 0) -> int:
        """Give the seed of a place: 63 bits, of which equal places have equal ones.

        Args:
            draw: What is drawn for.
            epoch: From 0.
            position: Samples of the epoch that all nodes have done before.
        """
        place = (self.seed, self.rank, self.local_rank, int(draw), epoch, position)
        digest = blake2b(pack("<6q", *place), digest_size=8).digest()
        return int.from_bytes(digest, "little") >> 1

    def throw(self, draw: Draw, epoch: int, position: int = 0) -> None:
        """Seed the global generators for a place."""
        seed_generators(self.seed_of(draw, epoch, position))


def seed_generators(seed: int) -> None:
    """Seed the global generators of torch, numpy and ``random``, in about 10 microseconds.

    Not by `torch.manual_seed`, which asks every kind of device and takes 370.

    Args:
        seed: 0 to 2**63 - 1.
    """
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.default_generators[torch.cuda.current_device()].manual_seed(seed)
    np.random.seed(seed % 2**32)  # the old generator: it is what data sets use
    random.seed(seed)
