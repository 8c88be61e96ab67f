"""Facts of a use case, collected by a worker before anything is planned."""

from __future__ import annotations

import os
import shlex
import shutil
import sysconfig
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import nn

from launch.case_facts import CaseFacts
from launch.data.input_facts import describe_input
from launch.errors import UseCaseError
from launch.reports import Reporter
from launch.system.allocators import find_allocators
from launch.training.averaging.optimizer import check_optimizer, has_fused_form
from launch.training.averaging.piece_optimizer import is_elementwise
from launch.training.flop_count import count_flop
from launch.training.whole_model import has_extra_state
from launch.use_cases._base import UseCase
from launch.workers.case_digest import digest_case
from launch.workers.sample_time import time_sample
from launch.workers.task import Task

_BATCH_WIDE = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
"""Layers whose output for one sample depends on the others of the batch."""


def describe(task: Task, case: UseCase, reporter: Reporter) -> CaseFacts:
    """Prepare the data and collect the facts that a planner needs.

    Raises:
        UseCaseError: The data cannot be used, or the use case does not meet the contract.
    """
    name, data = task.workload.use_case, task.workload.data_path
    case.prepare(data, reporter)
    model = case.model()
    if not isinstance(model, nn.Module):
        raise UseCaseError(
            f"model() of {name} gave a {type(model).__name__}: return a torch.nn.Module"
        )
    trained = [p for p in model.parameters() if p.requires_grad]
    if not trained:
        raise UseCaseError(
            f"the model of {name} has no parameter to train: set requires_grad on some"
        )
    if any(isinstance(module, _BATCH_WIDE) for module in model.modules()):
        reporter.warning(
            f"the model of {name} has BatchNorm, which every host, replica and "
            "micro-batch applies to its own part of the batch, as torch's DDP does, and whose "
            "running statistics are those of the first worker: check its accuracy, or train on "
            "one host with replicas=1 and micro_batches=1"
        )
    datasets = [case.dataset(data, train=train) for train in (True, False)]
    training, validation = map(_size, datasets, (True, False))
    batch = min(case.default_batch, training)
    optimizer = case.optimizer(model.parameters())
    check_optimizer(optimizer)
    input_facts = describe_input(*datasets)
    return CaseFacts(
        default_batch=batch,
        train_samples=training,
        validation_samples=validation,
        parameter_count=sum(p.numel() for p in trained),
        parameter_bytes=sum(p.numel() * p.element_size() for p in trained),
        max_stages=_most_stages(case.layers(model)),
        has_fused_optimizer=has_fused_form(optimizer),
        updates_in_parts=is_elementwise(optimizer) and case.max_gradient_norm is None,
        has_schedule=case.schedule(optimizer, -(-training // batch)) is not None,
        digest=digest_case(case, model, datasets),
        pixel_bytes=input_facts.pixel_bytes,
        inputs=input_facts.inputs,
        warnings=input_facts.warnings,
        allocators=("default", "retain", *find_allocators()),
        can_compile=find_compiler() is not None and (torch.version.cuda is None or has_triton()),
        flop_per_sample=count_flop(case, model, datasets[0]),
        sample_s=time_sample(case, model, datasets[0], training),
    )


def _most_stages(layers: nn.Sequential | None) -> int:
    """Count the stages that a pipeline may have: they do not exchange state that is no tensor."""
    return 1 if layers is None or has_extra_state(layers) else len(layers)


def _size(dataset: Any, train: bool) -> int:
    try:
        size = len(dataset)
    except TypeError as error:
        raise UseCaseError(
            f"dataset(train={train}) has no length: return a map-style data set with __len__"
        ) from error
    if train and size == 0:
        raise UseCaseError("dataset(train=True) is empty: give a folder with samples by --data")
    return int(size)


def find_compiler(environment: Mapping[str, str] = os.environ) -> str | None:
    """Find the C++ compiler that torch would call, ``None`` where it could not compile a kernel.

    Both the kernels of a CPU and what launches those of a GPU are extensions of Python.

    Source: ``cpp.cxx`` in torch/_inductor/config.py.
    """
    name = shlex.split(environment.get("CXX") or "g++")[0]
    headers = Path(sysconfig.get_path("include"), "Python.h")
    return shutil.which(name, path=environment.get("PATH")) if headers.exists() else None


def has_triton() -> bool:
    """Whether the compiler of GPU kernels is installed; it is not loaded by this."""
    return find_spec("triton") is not None
