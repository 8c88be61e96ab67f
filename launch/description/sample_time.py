"""Time of a sample: a rough figure, before any plan is tried, for what a budget can hold."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset

from launch.data.loading import read_batch
from launch.use_cases._base import UseCase

_FEWEST = 2
"""Samples of the first passes: BatchNorm wants two."""

_SAMPLES_TELL = 4.0
"""Time of a pass over that of the first samples, from which on no larger ones are made."""

_ENOUGH_S = 1.0
"""After so long no other pass is made and no other sample is read; the first pass apart."""

_READ_SAMPLES = 32


@dataclass(frozen=True, slots=True)
class SampleTime:
    """Time of forward and backward passes on the threads that torch has."""

    sample_s: float
    """Of a sample in the pass where it is least: an upper bound, as small passes take longer."""

    calls_s: float | None
    """Of a pass whatever its samples; ``None`` where passes took too long to tell."""


def time_sample(
    case: UseCase, model: nn.Module, dataset: Dataset[Any], samples: int
) -> SampleTime | None:
    """Time forward and backward passes of a few samples; ``None`` where that fails.

    Passes have twice the samples each until these take most of the time, or a batch. Each is made
    twice and the shorter time counts, because other work on the machine only adds to it. The very
    first one, which finds nothing ready, is one more: in a busy moment it takes a hundred times as
    long, or the second one does.

    Args:
        case: What is trained.
        model: Its model; has gradients afterwards.
        dataset: Its training samples.
        samples: How many there are.
    """
    model.train()
    count, times = _FEWEST, dict[int, float]()
    with contextlib.suppress(Exception):  # a trial tells better what is wrong
        least_s = _time_pass(case, model, dataset, count, samples)
        began = time.perf_counter()
        while count <= max(_FEWEST, case.default_batch):
            pass_s = _time_pass(case, model, dataset, count, samples)
            times[count] = min(pass_s, least_s) if count == _FEWEST else pass_s
            if time.perf_counter() - began > _ENOUGH_S:
                break
            times[count] = min(times[count], _time_pass(case, model, dataset, count, samples))
            if times[count] >= _SAMPLES_TELL * times[_FEWEST]:
                break
            count *= 2
    if not times:
        return None
    *_, (most, longest_s) = times.items()
    sample_s = min(time_s / count for count, time_s in times.items())
    if most == _FEWEST:
        return SampleTime(sample_s, None)
    each_s = (longest_s - times[_FEWEST]) / (most - _FEWEST)
    return SampleTime(sample_s, max(0.0, times[_FEWEST] - _FEWEST * each_s))


def _time_pass(
    case: UseCase, model: nn.Module, dataset: Dataset[Any], count: int, samples: int
) -> float:
    batch = read_batch(dataset, [index % samples for index in range(count)], case.collate)
    started = time.perf_counter()
    torch.autograd.backward(case.step(model, batch))
    return time.perf_counter() - started


def time_reading(dataset: Dataset[Any], samples: int) -> float | None:
    """Time one core to read a sample and to make it ready; ``None`` where that fails.

    Samples from all over the data set, because files differ in size. Each is read before, so that
    its file is in the page cache: how fast it comes into it is measured by a probe.
    """
    chosen = [samples * number // _READ_SAMPLES for number in range(_READ_SAMPLES)]
    times, began = [], time.perf_counter()
    with contextlib.suppress(Exception):
        for index in chosen:
            dataset[index]
            started = time.perf_counter()
            dataset[index]
            times.append(time.perf_counter() - started)
            if time.perf_counter() - began > _ENOUGH_S:
                break
    return sum(times) / len(times) if times else None
