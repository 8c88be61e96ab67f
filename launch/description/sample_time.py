"""Time of a sample: a rough figure, before any plan is tried, for what a budget can hold."""

from __future__ import annotations

import contextlib
import math
import os
import time
from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset

from launch.data.loading import read_batch
from launch.use_cases._base import UseCase

_PASSES = (2, 2, 4, 8)
"""Samples of each pass: BatchNorm wants two. The first pass finds nothing ready, and is not to be
the only one: in a busy moment it takes a hundred times as long as those after it."""

_ENOUGH_S = 1.0
"""After so long no other pass is made and no other sample is read; the first pass apart."""

_READ_SAMPLES = 32


def time_sample(case: UseCase, model: nn.Module, dataset: Dataset[Any], samples: int) -> float:
    """Time a forward and backward pass of a few samples on all cores; 0 where that fails.

    The least time of a few passes, because other work on the machine only adds to it. Small batches
    take more time per sample than large ones, and the first pass of a process takes longer than
    those after it: the figure is an upper bound.

    Args:
        case: What is trained.
        model: Its model; has gradients afterwards.
        dataset: Its training samples.
        samples: How many there are.
    """
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    model.train()
    found_s, began = math.inf, time.perf_counter()
    with contextlib.suppress(Exception):  # a trial tells better what is wrong
        for number, count in enumerate(_PASSES):
            indices = [index % samples for index in range(count)]
            batch = read_batch(dataset, indices, case.collate)
            started = time.perf_counter()
            torch.autograd.backward(case.step(model, batch))
            found_s = min(found_s, (time.perf_counter() - started) / count)
            if number == 0:
                began = time.perf_counter()
            elif time.perf_counter() - began > _ENOUGH_S:
                break
    return found_s if math.isfinite(found_s) else 0.0


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
