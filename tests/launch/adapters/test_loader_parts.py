"""Data loaders taken apart: batches that are lists of numbers, where shares of them are exact."""

from __future__ import annotations

import pytest
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from launch.adapters._loader_parts import take_apart
from launch.errors import UseCaseError


@pytest.mark.parametrize(
    ("batches", "samples", "size"),
    [
        ([[0, 1], [2, 3]], [0, 1, 2, 3], 2),
        ([[0, 1, 2], [3, 4, 5], [6]], [0, 1, 2, 3, 4, 5, 6], 3),
        (((0, 1), (2, 3), (4, 5), (6, 7)), [0, 1, 2, 3, 4, 5, 6, 7], 2),
    ],
)
def test_listed_batches_that_a_batch_size_would_make_are_taken(batches, samples, size):
    parts = take_apart(DataLoader(range(8), batch_sampler=batches), "loader")
    dataset = parts.dataset
    assert ([dataset[index] for index in range(len(dataset))], parts.batch_size) == (samples, size)


@pytest.mark.parametrize(
    "batches",
    [
        [],
        [[]],
        [[0, 2], [1, 3]],
        [[0, 1], [1, 2]],
        [[0, 1, 2], [3], [4, 5]],
        [[0], [1, 2]],
        [[1, 2]],
    ],
)
def test_listed_batches_of_another_kind_are_refused_with_the_reason(batches):
    with pytest.raises(UseCaseError, match=r"batch_sampler=list, .* groups of your own"):
        take_apart(DataLoader(range(8), batch_sampler=batches), "loader")


@pytest.mark.parametrize(
    ("sampler", "samples"),
    [
        (SequentialSampler(range(8)), list(range(8))),
        (RandomSampler(range(8)), list(range(8))),
        (SubsetRandomSampler([3, 1]), [3, 1]),
    ],
)
def test_batches_of_torch_s_own_kind_have_the_samples_of_their_sampler(sampler, samples):
    loader = DataLoader(range(8), batch_sampler=BatchSampler(sampler, 2, drop_last=False))
    parts = take_apart(loader, "loader")
    dataset = parts.dataset
    assert ([dataset[index] for index in range(len(dataset))], parts.batch_size) == (samples, 2)


@pytest.mark.parametrize(
    "sampler",
    [
        WeightedRandomSampler([1.0, 2.0] * 4, 8),
        SequentialSampler(range(4)),
        RandomSampler(range(8), num_samples=4),
        RandomSampler(range(8), replacement=True),
    ],
)
def test_sampler_that_leaves_out_samples_or_repeats_some_is_refused(sampler):
    """The story: inside of a batch_sampler it was ignored, and all samples trained alike."""
    own = {"sampler": sampler, "batch_size": 2}
    for how in (own, {"batch_sampler": BatchSampler(sampler, 2, drop_last=False)}):
        with pytest.raises(UseCaseError, match=f"has sampler={type(sampler).__name__}"):
            take_apart(DataLoader(range(8), **how), "loader")
