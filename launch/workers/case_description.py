"""Facts of a use case, collected by a worker before anything is planned."""

from __future__ import annotations

import os
import shlex
import shutil
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from launch.case_facts import CaseFacts
from launch.checkpoints.weights import check_state
from launch.data.batch import leaves
from launch.data.input_facts import InputDescription, describe_input
from launch.description.case_digest import digest_case
from launch.description.contract_use import find_own_methods, find_unsaved
from launch.description.loss_check import check_loss
from launch.description.sample_cost import measure_sample
from launch.description.sample_time import time_reading, time_sample
from launch.errors import UseCaseError
from launch.onnx_export.exporting import check_call
from launch.process_environment.allocators import find_allocators
from launch.reports import Reporter
from launch.training.averaging.optimizer import check_optimizer, has_fused_form
from launch.training.averaging.update_scope import UpdateScope, find_update_scope
from launch.training.schedule import make_schedule
from launch.training.whole_model import has_extra_state
from launch.use_cases._adapter import find_lookalikes
from launch.use_cases._base import UseCase, is_own
from launch.use_cases._imports import find_users_line
from launch.use_cases._settings import split_name
from launch.workers.task import Task
from probes.cpu import read_cpu


def describe(task: Task, case: UseCase, reporter: Reporter) -> CaseFacts:
    """Prepare the data and collect the facts that a planner needs; times only where it has no plan.

    Raises:
        UseCaseError: The data cannot be used, or the use case does not meet the contract.
        CheckpointError: The model's state has something that no file of weights can hold.
    """
    name, data = task.workload.use_case, task.workload.data_path
    with _missing_data_named(task):
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
    _check_buffers(model, name)
    check_state(model)
    has_batch_norm = any(isinstance(module, _BatchNorm) for module in model.modules())
    if has_batch_norm:
        reporter.warning(
            f"the model of {name} has BatchNorm, which every host, replica and "
            "micro-batch applies to its own part of the batch, as torch's DDP does, and whose "
            "running statistics are those of the first worker: check its accuracy, or train on "
            "one host with replicas=1 and micro_batches=1"
        )
    with _missing_data_named(task):
        datasets = [case.dataset(data, train=train) for train in (True, False)]
    training, validation = map(_size, datasets, (True, False))
    batch = min(case.default_batch, training)
    scope = find_update_scope(case.optimizer, model)
    optimizer = case.optimizer(model.parameters())
    check_optimizer(optimizer, model)
    # What is wrong with it is told now, and not by each trial.
    make_schedule(
        case, optimizer, steps_per_epoch=-(-training // batch), epochs=max(1, task.epochs)
    )
    # A worker begins with one core, which large models would take long on.
    torch.set_num_threads(read_cpu().usable_cores)
    cost = measure_sample(case, model, datasets[0])  # imports what only a step does
    digest = digest_case(case, model, datasets, split_name(name)[1])
    if _is_unchecked(task, digest):
        for found, meant in find_lookalikes(getattr(case, "subject", case)).items():
            reporter.warning(f"{found} of {name} is never used: is {meant} meant?")
        for warning in getattr(case, "find_warnings", list)():  # of an adapter
            reporter.warning(warning)
        check_loss(case, model, datasets[0], name)
    # What a use case collates by itself, decoded pictures do not pass.
    input_facts = InputDescription() if is_own(case, "collate") else describe_input(*datasets)
    uncut_reason = _find_uncut_reason(case, datasets[0])
    layers = None if uncut_reason else case.layers(model)
    if task.onnx is not None:
        check_call(case, model, datasets[0])
    is_search = task.plan is None  # a launch, which has one, waits for no times
    taken = time_sample(case, model, datasets[0], training) if is_search else None
    return CaseFacts(
        default_batch=batch,
        train_samples=training,
        validation_samples=validation,
        parameter_count=sum(p.numel() for p in trained),
        parameter_bytes=sum(p.nbytes for p in trained),
        # Stages do not exchange state that is no tensor.
        max_stages=1 if layers is None or has_extra_state(layers) else len(layers),
        uncut_reason=uncut_reason,
        has_weights=is_own(case, "weight"),
        has_fused_optimizer=has_fused_form(optimizer),
        updates_in_parts=scope is UpdateScope.ELEMENT and case.max_gradient_norm is None,
        updates_at_once=scope is UpdateScope.MODEL,
        digest=digest,
        is_generated=any(getattr(dataset, "is_generated", False) is True for dataset in datasets),
        pixel_bytes=input_facts.pixel_bytes,
        inputs=input_facts.inputs,
        warnings=input_facts.warnings,
        allocators=("default", "retain", *find_allocators()),
        can_compile=find_compiler() is not None and (torch.version.cuda is None or _has_triton()),
        flop_per_sample=cost.flop,
        kept_bytes_per_sample=cost.kept_bytes,
        sample_bytes=cost.batch_bytes,
        own_methods=find_own_methods(case),
        has_batch_norm=has_batch_norm,
        unsaved=find_unsaved(model),
        sample_s=0.0 if taken is None else taken.sample_s,
        calls_s=None if taken is None else taken.calls_s,
        data=task.workload.data,
        read_s=time_reading(datasets[0], training) if is_search else None,
    )


@contextmanager
def _missing_data_named(task: Task) -> Iterator[None]:
    """Let a use case that takes ``None`` for a path say that the user has named no data.

    Raises:
        UseCaseError: It does in this block.
    """
    try:
        yield
    except (AttributeError, TypeError) as error:
        if task.workload.data is not None or "NoneType" not in str(error):
            raise
        name = task.workload.use_case
        line = find_users_line(error, name)
        where = f" ({line})" if line else ""
        raise UseCaseError(
            f"{name} fails without data, {type(error).__name__}: {error}{where}: name them with "
            "--data, if it reads some"
        ) from error


def _check_buffers(model: nn.Module, name: str) -> None:
    """Check that workers can share the model's buffers, saved ones and others.

    Raises:
        UseCaseError: One is not dense, and so has no memory of its own that could be shared.
    """
    for buffer_name, buffer in model.named_buffers():
        if buffer.layout is not torch.strided:
            raise UseCaseError(
                f"buffer {buffer_name!r} of the model of {name} is a tensor of {buffer.layout}, "
                "which workers cannot share: keep its indices and values as buffers, and make it "
                "of them in forward()"
            )


def _is_unchecked(task: Task, digest: str) -> bool:
    """Tell whether a use case is new, or was changed since it was checked."""
    known = task.case_digests
    return digest not in known if known else task.plan is None


def _find_uncut_reason(case: UseCase, dataset: Any) -> str | None:
    """Find why the model cannot be cut into stages, beside a lack of layers."""
    if is_own(case, "step"):
        return (
            "the use case has a step() of its own, which cannot be cut into stages: give "
            "loss(output, target) in its place"
        )
    if not is_own(case, "collate"):
        return None
    some = [case.collate([dataset[index]] * 2) for index in range(min(len(dataset), 8))]
    shapes = {
        tuple(tuple(leaf.shape) for leaf in leaves(batch[0]) if isinstance(leaf, Tensor))
        for batch in some
    }
    return None if len(shapes) == 1 else "the inputs of its batches differ in shape: pad them alike"


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


def _has_triton() -> bool:
    """Whether the compiler of GPU kernels is installed; it is not loaded by this."""
    return find_spec("triton") is not None
