"""Parts of a `DataLoader`: the samples, their collation and the batch size, without its order.

ddlplan draws the order of an epoch and cuts each batch into shares by the numbers of its samples.
A loader that chooses its samples or batches by itself would lose its say in that, so it is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    default_collate,
)

from launch.errors import UseCaseError

Collate = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class LoaderParts:
    """What ddlplan takes from a loader."""

    dataset: Dataset[Any]
    collate: Collate
    batch_size: int


def take_apart(loader: object, origin: str) -> LoaderParts:
    """Take a loader apart.

    Args:
        loader: What ``train_dataloader()`` or ``val_dataloader()`` gave.
        origin: That name, with its class, for messages.

    Raises:
        UseCaseError: Its batches could not be cut into exact shares.
    """
    if isinstance(loader, Sequence) and len(loader) == 1:
        loader = loader[0]
    if not isinstance(loader, DataLoader):
        many = f"{len(loader)} loaders" if isinstance(loader, (list, tuple, dict)) else None
        raise UseCaseError(
            f"{origin} gave {many or type(loader).__name__}: return one torch.utils.data.DataLoader"
        )
    dataset, batches = loader.dataset, loader.batch_sampler
    if isinstance(dataset, IterableDataset):
        raise UseCaseError(
            f"{origin} reads an IterableDataset ({type(dataset).__name__}), whose samples have no "
            "numbers, so that workers and hosts cannot share its batches exactly: make it a "
            "map-style data set, with __len__ and __getitem__"
        )
    collate = loader.collate_fn or default_collate
    if isinstance(batches, (list, tuple)):
        return _take_listed(dataset, collate, batches, origin)
    if type(batches) is not BatchSampler:
        what = "batch_size=None" if batches is None else f"batch_sampler={type(batches).__name__}"
        raise UseCaseError(
            f"{origin} has {what}, and ddlplan cuts batches into shares by the numbers of single "
            "samples: give the loader a batch_size in its place"
        )
    # Of a batch_sampler that was given, the loader's own sampler says nothing.
    sampler, size = batches.sampler, batches.batch_size
    if type(sampler) is SubsetRandomSampler:
        return LoaderParts(Subset(dataset, list(sampler.indices)), collate, size)
    is_whole = (
        type(sampler) is SequentialSampler
        or (type(sampler) is RandomSampler and not sampler.replacement)
    ) and len(sampler) == len(dataset)  # type: ignore[arg-type]
    if not is_whole:
        raise UseCaseError(
            f"{origin} has sampler={type(sampler).__name__}, and ddlplan draws the order of the "
            "samples by itself, each once an epoch: leave out the sampler, or use shuffle=True"
        )
    return LoaderParts(dataset, collate, size)


def _take_listed(
    dataset: Dataset[Any], collate: Collate, batches: Sequence[Any], origin: str
) -> LoaderParts:
    """Take batches that are lists of numbers: those which ``batch_size`` would make, no others."""
    indices = [int(index) for batch in batches for index in batch]
    size = len(batches[0]) if batches else 0
    is_equal = all(len(batch) == size for batch in batches[:-1])
    is_in_order = indices == list(range(len(indices)))
    if not size or not is_equal or len(batches[-1]) > size or not is_in_order:
        raise UseCaseError(
            f"{origin} has batch_sampler={type(batches).__name__}, whose batches are not the "
            "samples 0, 1, 2, ... in pieces of one size, and ddlplan cuts batches into shares by "
            "numbers that it draws anew in each epoch: groups of your own would be taken apart: "
            "give the loader a batch_size in its place"
        )
    is_whole = len(indices) == len(dataset)  # type: ignore[arg-type]
    return LoaderParts(dataset if is_whole else Subset(dataset, indices), collate, size)


def is_same_collation(one: Collate, other: Collate) -> bool:
    """Tell whether two loaders make batches by the same code."""
    return one == other or (
        type(one) is type(other)
        and getattr(one, "__code__", type(one)) is getattr(other, "__code__", type(other))
    )
