"""Extreme samples of a data set: those with the least and with the greatest labels.

What a loss leaves out, such as ``-100``, ``-1``, 255 or the padding 0, is at one end of its labels.
So are the classes of a data set with two of them, and the shortest and the longest of texts.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.utils.data import Dataset

from launch.data.batch import Batch, leaves
from launch.use_cases._base import UseCase

_SAMPLES, _LONGEST_S = 512, 0.3
"""Samples that are looked at, or as many as can be read in the time: labels that 1 % of samples
have are among 512 of them in 99 % of all data sets."""


@dataclass(frozen=True, slots=True)
class ExtremeSamples:
    """Numbers of samples that differ in the values of a tensor, or in how many it has."""

    least: int
    greatest: int

    between: int
    """One that is between both, where there is one: losses leave out extremes."""


@dataclass(frozen=True, slots=True)
class _Values:
    """The whole numbers of a tensor, or how many it has."""

    low: int
    high: int

    total: int
    """Tells padded texts of different length apart, whose least number is the same."""


def find_extreme_samples(case: UseCase, dataset: Dataset[Any]) -> list[ExtremeSamples]:
    """Give the samples with the least and the greatest value, for each tensor of whole numbers.

    And, before them, those with the fewest and the most values. The last tensor of a sample comes
    first, which mostly is its label. What differs in all samples, such as a sample's number, comes
    after all others; what is alike in all is left out, and what tells the same samples apart again,
    as the mask of texts does.
    """
    count = len(dataset)  # type: ignore[arg-type]
    chosen = random.Random(0).sample(range(count), min(count, _SAMPLES))  # noqa: S311 - no secret
    found = dict[int, dict[int, _Values]]()
    began = time.perf_counter()
    with suppress(Exception):  # what wants more than one sample, or cannot be read one by one
        for index in chosen:
            for number, values in enumerate(_whole_numbers(case.collate([dataset[index]]))):
                found.setdefault(number, {})[index] = values
            if time.perf_counter() - began > _LONGEST_S:
                break
    last_first = [found[number] for number in sorted(found, reverse=True)]
    last_first.sort(key=lambda values: len(set(values.values())) == len(values))
    return list(dict.fromkeys(one for one in map(_find_extremes, last_first) if one is not None))


def _find_extremes(values: Mapping[int, _Values]) -> ExtremeSamples | None:
    """Find the extremes by the numbers of samples, ``None`` where all are alike."""
    least = min(values, key=lambda index: (values[index].low, values[index].total))
    others = [index for index, one in values.items() if one != values[least]]
    if not others:
        return None
    greatest = max(others, key=lambda index: (values[index].high, values[index].total))
    low, high = values[least].low, values[greatest].high
    rest = [index for index in values if index not in (least, greatest)]
    inside = [index for index in rest if low < values[index].low and values[index].high < high]
    return ExtremeSamples(least, greatest, between=[*inside, *rest, greatest][0])


def _whole_numbers(batch: Batch) -> Iterator[_Values]:
    for leaf in leaves(batch):
        is_whole = isinstance(leaf, Tensor) and not (leaf.is_floating_point() or leaf.is_complex())
        if is_whole and leaf.numel():
            low, high = leaf.aminmax()
            yield _Values(int(low), int(high), int(leaf.sum()))
            count = leaf.numel()  # differs between texts that are padded in a batch alone
            yield _Values(count, count, count)
