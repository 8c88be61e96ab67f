"""Worker: builds its part of the strategy, reads its share, trains, reports.

Runs in a process of its own, forked by `launch.workers.fork_server`. It never imports mpi4py.
"""

from __future__ import annotations

import os
import time
import traceback
from pathlib import Path

import torch

from launch.checkpoints.checkpoint import MALFORMED
from launch.checkpoints.weights import check_weights, load_weights, save_weights
from launch.errors import (
    CheckpointError,
    ExportTargetError,
    LaunchError,
    LostWorkerError,
    SharedMemoryError,
    UseCaseError,
)
from launch.gradient_sync.node_channel.descriptors import SharedDescriptors
from launch.gradient_sync.node_channel.requests import RequestClient
from launch.gradient_sync.worker_sync.model_sync import ModelSync
from launch.local_group.group import LocalProcessGroup
from launch.onnx_export.exporting import check_target, export_model
from launch.plan import Plan
from launch.process_environment.allocators import set_allocator
from launch.reports import (
    Described,
    Failed,
    OnnxSaved,
    PrecisionChecked,
    Reporter,
    TaskDone,
    WeightsSaved,
)
from launch.strategies import load_strategy
from launch.training.autocast import set_precision
from launch.training.compiled import set_compiler_cache
from launch.training.onednn_linear import set_linear
from launch.training.precision.check import PrecisionCheck
from launch.training.precision.figures import find_obstacle
from launch.training.step import TrainStep
from launch.use_cases import resolve
from launch.use_cases._base import UseCase
from launch.use_cases._imports import find_users_line
from launch.workers.case_description import describe
from launch.workers.checkpointer import TrainingWorker, resolve_plan
from launch.workers.finiteness import check_finite_parameters
from launch.workers.log import lacks_shared_memory
from launch.workers.step_permits import StepPermits
from launch.workers.task import Purpose, Task
from launch.workers.trainer import Trainer

_ROOT_CAUSE_GRACE_S = 10.0


def run(task: Task, report_descriptor: int, permits: int, descriptors: SharedDescriptors) -> int:
    """Do a task, report what happens, and give the exit status."""
    reporter = Reporter(report_descriptor)
    try:
        case = resolve(task.workload.use_case).load(task.workload.data_path)
        if task.purpose is Purpose.DESCRIBE:
            if task.onnx is not None:
                check_target(Path(task.onnx))
            reporter.send(Described(facts=describe(task, case, reporter)))
        elif task.purpose is Purpose.EXPORT:
            reporter.send(_export(task, case))
        elif task.purpose is Purpose.CHECK_PRECISION:
            _configure_process(task)
            _check_precisions(task, case, reporter)
        else:
            _train(task, case, reporter, StepPermits(permits), descriptors)
    except BaseException as error:  # noqa: BLE001 - the user's own code runs here and may raise anything
        if isinstance(error, LostWorkerError):
            # The node is about to notice that worker's end, and to end this one too: the cause must
            # come first.
            time.sleep(_ROOT_CAUSE_GRACE_S)
        else:
            traceback.print_exc()
        reporter.send(_describe_failure(error, task))
        return 1
    reporter.send(TaskDone())
    return 0


def _describe_failure(error: BaseException, task: Task) -> Failed:
    """Describe an error; one that is none of ours with the user's line, where it has one."""
    error = _find_loader_end(error)
    if lacks_shared_memory(str(error)):
        error = SharedMemoryError(_explain_full_shared_memory(str(error), task.plan))
    message = " ".join(str(error).split())[:2000] or "no message"
    is_ours = isinstance(error, LaunchError)
    line = None if is_ours else find_users_line(error, task.workload.use_case)
    message += f" ({line})" if line else ""
    users_fault = isinstance(error, (UseCaseError, CheckpointError, ExportTargetError))
    return Failed(error=type(error).__name__, message=message, users_fault=users_fault)


def _find_loader_end(error: BaseException) -> BaseException:
    """Find the error that names the signal which ended a loading process.

    torch raises another one in its place, which says only that the process has ended.
    """
    cause = error.__cause__
    is_end = isinstance(cause, RuntimeError) and "DataLoader worker" in str(cause)
    return cause if cause is not None and is_end else error


def _explain_full_shared_memory(text: str, plan: Plan | None) -> str:
    """Say what makes room there: settings of the plan only where it has loading processes."""
    found = "no room left in /dev/shm"
    remedy = "start the container with --shm-size=8g or --ipc=host"
    if "signal: Bus error" in text:  # a mapped file that has become shorter is another cause
        found = "a loading process killed by SIGBUS, as it is where /dev/shm has no room left"
    if plan is not None and plan.loader_workers:
        found = f"loader_workers={plan.loader_workers}, node_batch={plan.node_batch} and {found}"
        remedy = f"use fewer loader workers or a smaller batch, or {remedy}"
    return f"{found}: {remedy}"


def _train(
    task: Task,
    case: UseCase,
    reporter: Reporter,
    permits: StepPermits,
    descriptors: SharedDescriptors,
) -> None:
    assert task.plan is not None
    strategy = load_strategy(task.plan.strategy)
    strategy.check(task.plan)
    _configure_process(task)
    torch.manual_seed(task.workload.seed)
    has_other_nodes = len(task.split.node_batches) > 1
    group = LocalProcessGroup(
        task.local_rank, task.group_size, task.cores, descriptors, has_other_nodes=has_other_nodes
    )
    plan = resolve_plan(task)
    step = strategy.build(plan, case, group)  # equal seeds give equal models
    group.barrier()
    rank = RequestClient(descriptors, task.local_rank) if task.has_rank else None
    worker = TrainingWorker(
        task=task, plan=plan, case=case, step=step, group=group, rank=rank, reporter=reporter
    )
    trainer = Trainer(worker)
    trainer.prepare_input()
    if task.purpose is Purpose.TIME:
        trainer.train_by_permits(permits)
    samples = {"training": trainer.num_samples, "validation": trainer.num_validation_samples}
    if (layout := group.gradient_layout(samples)) is not None:
        reporter.send(layout)
    checkpointer = trainer.start_checkpointer()
    if task.noise_cost_limit is not None:
        trainer.measure_noise(task.noise_cost_limit)
    _check_weights(task, trainer, step)
    nodes = None
    if rank is not None and has_other_nodes:
        nodes = ModelSync(rank, is_source=task.node == 0, local_rank=task.local_rank)
        nodes.sync_model(step.model)
    if task.by_turns:
        trainer.take_turns(permits)
    while trainer.progress.epoch < task.epochs:
        has_ended = trainer.train(checkpointer)
        step.sync_model()
        if not has_ended:
            break
        if nodes is not None:
            nodes.sync_model(step.model)
        trainer.validate()
    else:
        trainer.save_checkpoint(checkpointer)
    if task.weights is not None and task.local_rank == 0:
        if not task.allow_nan:
            check_finite_parameters(dict(step.model.named_parameters()), trainer.progress.step)
        size = save_weights(step.model, Path(task.weights))
        reporter.send(WeightsSaved(path=task.weights, num_bytes=size))
    group.barrier()  # no worker waits for this one any more, or reads from its memory
    checkpointer.close()
    step.close()


def _export(task: Task, case: UseCase) -> OnnxSaved:
    """Write the trained model as an ONNX file."""
    assert task.weights is not None
    assert task.onnx is not None
    model = case.model()
    try:
        model.load_state_dict(load_weights(task.weights))
    except MALFORMED as error:
        reason = " ".join(str(error).split())[:300]
        raise CheckpointError(
            f"{task.weights} does not fit the model of the use case ({reason}): use the code that "
            "it was trained with"
        ) from error
    return export_model(
        case, model, case.dataset(task.workload.data_path, train=True), Path(task.onnx)
    )


def _check_weights(task: Task, trainer: Trainer, step: TrainStep) -> None:
    """Check before the first step that the weights can be saved after the last one."""
    if task.node > 0 or task.local_rank > 0:
        return
    if task.best_weights is not None:
        if not trainer.num_validation_samples:
            raise UseCaseError("--keep-best and no validation samples: leave it out")
        trainer.report_best()
    if task.weights is not None:
        files = 1 if task.best_weights is None else 2  # the best, and better or the last
        check_weights(step.model, Path(task.weights), files=files)


def _configure_process(task: Task) -> None:
    """Configure this process for its plan, before the first operator starts any thread."""
    assert task.plan is not None
    if task.cores:
        os.sched_setaffinity(0, task.cores)
    torch.set_num_threads(task.plan.threads_per_process)
    torch.set_num_interop_threads(1)
    set_precision(task.plan)
    set_linear(task.plan)
    set_allocator(task.plan.allocator)
    if task.plan.compile:
        set_compiler_cache()


def _check_precisions(task: Task, case: UseCase, reporter: Reporter) -> None:
    """Try each of the task's precisions and report it as soon as it is checked."""
    assert task.plan is not None
    check = PrecisionCheck(task.plan, case, task.workload.data_path)
    for precision in task.precisions:
        try:
            obstacle = find_obstacle(check.measure(precision))
        except Exception as error:  # noqa: BLE001 - the user's own code runs here and may raise anything
            traceback.print_exc()
            obstacle = f"{type(error).__name__}: {' '.join(str(error).split())[:500]}"
        reporter.send(PrecisionChecked(precision=precision, obstacle=obstacle))
