"""Data loaders taken apart: batches that are lists of numbers, where shares of them are exact."""

from __future__ import annotations

import pytest
from torch.utils.data import DataLoader

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
