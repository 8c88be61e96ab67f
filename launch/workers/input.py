"""Input of a plan: the data set, its decoded pictures, or pictures on the device."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch.utils.data import Dataset

from launch.data.decoded_pictures import DecodedPictures
from launch.data.device_pictures import DevicePictures
from launch.data.pictures import Pictures
from launch.data.samples import split_evenly
from launch.data.split import Indices
from launch.errors import UseCaseError
from launch.local_group.group import LocalGroup
from launch.plan import Plan
from launch.use_cases._base import UseCase, is_own

_TRIAL_SAMPLES = 1024
"""Samples that a trial repeats. Their pictures, 150 MB of 224 x 224, are more than a core's
caches hold, and are decoded before the first step, so that a short trial times reading alone."""


def open_training(
    plan: Plan, case: UseCase, dataset: Dataset[Any], *, is_trial: bool = False
) -> Dataset[Any]:
    """Open the training samples for the input of a plan.

    Args:
        plan: The plan.
        case: What is trained.
        dataset: Its samples.
        is_trial: Whether a few of them are read again and again, in place of all of them.

    Raises:
        UseCaseError: The data set has no pictures that can be decoded once, the use case makes its
            batches itself, or the disk is too small.
    """
    if plan.input == "files":
        return dataset
    if is_own(case, "collate"):
        raise UseCaseError(
            f"plan with input={plan.input} and a use case with its own collate(samples), which "
            "decoded pictures do not pass: use input=files"
        )
    if not isinstance(dataset, Pictures):
        raise UseCaseError(
            f"plan with input={plan.input} and a {type(dataset).__name__} without "
            f"{', '.join(_list_missing(dataset))}: use input=files, or give the data set what "
            "launch.data.pictures.Pictures asks for"
        )
    return DecodedPictures(dataset, threads=plan.threads_per_process, forgets=is_trial)


def open_validation(plan: Plan, dataset: Dataset[Any]) -> Dataset[Any]:
    """Open the validation samples: decoded pictures if the training samples are."""
    if plan.input == "files" or not isinstance(dataset, Pictures) or len(dataset) == 0:
        return dataset
    return DecodedPictures(dataset, threads=plan.threads_per_process)


def trial_samples(plan: Plan) -> int | None:
    """Return the number of samples that a trial repeats, ``None`` for all."""
    return None if plan.input == "files" else max(_TRIAL_SAMPLES, plan.node_batch)


def decode_shares(training: Dataset[Any], samples: Indices, group: LocalGroup) -> None:
    """Decode the samples that will be read, each worker a share. Collective."""
    if not isinstance(training, DecodedPictures):
        return
    training.fill(split_evenly(samples, group.size)[group.local_rank])
    group.barrier()
    training.fill(samples)  # verifies what the others decoded


def copy_to_device(
    plan: Plan, training: Dataset[Any], samples: Indices, device: torch.device
) -> Dataset[Any]:
    """Copy the samples that a worker will read to its device, where the plan's input is there."""
    if plan.input != "device":
        return training
    assert isinstance(training, DecodedPictures)
    return DevicePictures(training, samples, device)


def _list_missing(dataset: object) -> list[str]:
    promised = inspect.getmembers(Pictures, inspect.isfunction)
    names = [name for name, _ in promised if not name.startswith("_")]
    return [f"{name}()" for name in names if not hasattr(dataset, name)]
