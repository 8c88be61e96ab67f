"""What is random depends on its place in the training, and on nothing that was drawn before."""

from __future__ import annotations

import random

import numpy
import pytest
import torch
from torch.utils.data import Dataset

from launch.data.loading import load
from launch.data.random_state import RandomUse, SeedSource, seed_generators
from launch.data.split import BatchSize


def draws() -> tuple[float, float, float]:
    return torch.rand(1).item(), numpy.random.rand(), random.random()


def test_equal_places_draw_equal_numbers_from_every_generator():
    seed_source = SeedSource(seed=7, rank=1, local_rank=2)
    seed_source.seed_generators_for(RandomUse.STEP, 3, 40)
    first = draws()
    assert draws() != first
    seed_source.seed_generators_for(RandomUse.STEP, 3, 40)
    assert draws() == first


def test_every_other_place_draws_others():
    places = [
        (SeedSource(seed=7), RandomUse.STEP, 0, 0),
        (SeedSource(seed=8), RandomUse.STEP, 0, 0),
        (SeedSource(seed=7, rank=1), RandomUse.STEP, 0, 0),
        (SeedSource(seed=7, local_rank=1), RandomUse.STEP, 0, 0),
        (SeedSource(seed=7), RandomUse.TRAINING_SAMPLES, 0, 0),
        (SeedSource(seed=7), RandomUse.STEP, 1, 0),
        (SeedSource(seed=7), RandomUse.STEP, 0, 1),
    ]
    seeds = [seed_source.seed_of(*place) for seed_source, *place in places]
    assert len(set(seeds)) == len(seeds)
    drawn = []
    for seed in seeds:
        assert 0 <= seed < 2**63
        seed_generators(seed)
        drawn += draws()
    assert len(set(drawn)) == 3 * len(seeds)


class Drawing(Dataset):
    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int):
        return torch.tensor([index, *draws()], dtype=torch.float64)


class DrawingTogether(Drawing):
    def __getitems__(self, indices):
        return [self[index] for index in indices]


def loaded(dataset, batches, **settings) -> list[torch.Tensor]:
    seed_source = SeedSource(seed=7)
    work = ((indices, BatchSize(len(indices), len(indices))) for indices in batches)
    seeds = (seed_source.seed_of(RandomUse.TRAINING_SAMPLES, 0, indices[0]) for indices in batches)
    return [batch for batch, _ in load(dataset, work, seeds=seeds, **settings)]


@pytest.mark.parametrize("dataset", [Drawing(), DrawingTogether()], ids=["single", "together"])
def test_samples_are_the_same_whoever_reads_them_and_wherever_reading_begins(dataset):
    batches = [list(range(low, low + 4)) for low in range(0, 40, 4)]
    here = loaded(dataset, batches, loader_workers=0)
    elsewhere = loaded(dataset, batches, loader_workers=1)
    later = loaded(dataset, batches[6:], loader_workers=2)
    assert all(map(torch.equal, here, elsewhere))
    assert all(map(torch.equal, here[6:], later))
    assert len({value.item() for batch in here for value in batch[:, 1]}) == 40
