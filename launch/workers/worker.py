"""What does a worker do? It builds its part of the strategy, reads its share, trains, reports.

Runs in a process of its own, forked by `launch.workers.fork_server`. It never imports mpi4py.
"""

from __future__ import annotations

import os
import time
import traceback
from pathlib import Path

import torch

from launch.allocators import settle_allocator
from launch.errors import CheckpointError, LostWorkerError, UseCaseError
from launch.exchange.one_model import OneModel
from launch.exchange.peers import Place
from launch.exchange.questions import Asking
from launch.strategies import load_strategy
from launch.training.compiled import settle_compiler
from launch.training.group import ProcessGroup
from launch.training.handles import GroupHandles
from launch.training.precision import settle_precision
from launch.training.weights import save_weights
from launch.use_cases import load_use_case
from launch.use_cases._base import UseCase
from launch.workers.check import check_precisions
from launch.workers.describe import describe
from launch.workers.keeper import settled_plan
from launch.workers.reports import (
    Described,
    Failed,
    GradientsLaid,
    Reporter,
    TaskDone,
    WeightsSaved,
)
from launch.workers.task import Purpose, Task
from launch.workers.trainer import Trainer

_CAUSE_LIMIT_S = 10.0


def run(task: Task, report_descriptor: int, handles: GroupHandles) -> int:
    """Do a task, report what happens, and give the exit status."""
    reporter = Reporter(report_descriptor)
    try:
        case = load_use_case(task.use_case)
        if task.purpose is Purpose.DESCRIBE:
            reporter.send(Described(facts=describe(task, case, reporter).to_json()))
        elif task.purpose is Purpose.CHECK_PRECISION:
            _settle(task)
            check_precisions(task, case, reporter)
        else:
            _train(task, case, reporter, handles)
    except LostWorkerError as error:
        # The node is about to hear of that worker's end, and to end this one too: the cause must
        # come first.
        time.sleep(_CAUSE_LIMIT_S)
        reporter.send(_failure(error))
        return 1
    except Exception as error:  # noqa: BLE001 - the user's own code runs here and may raise anything
        traceback.print_exc()
        reporter.send(_failure(error))
        return 1
    reporter.send(TaskDone())
    return 0


def _failure(error: Exception) -> Failed:
    message = " ".join(str(error).split())[:2000] or "no message"
    users_fault = isinstance(error, (UseCaseError, CheckpointError))
    return Failed(error=type(error).__name__, message=message, users_fault=users_fault)


def _train(task: Task, case: UseCase, reporter: Reporter, handles: GroupHandles) -> None:
    assert task.plan is not None
    strategy = load_strategy(task.plan.strategy)
    strategy.check(task.plan)
    _settle(task)
    torch.manual_seed(task.seed)
    has_peers = len(task.split.node_batches) > 1
    group = ProcessGroup(task.local_rank, task.group_size, task.cores, handles, has_peers=has_peers)
    plan = settled_plan(task)
    step = strategy.build(plan, case, group)  # equal seeds give equal models
    group.barrier()
    rank = Asking(handles, task.local_rank) if task.is_led else None
    trainer = Trainer(task, plan, case, step, reporter, rank)
    trainer.prepare_input(group)
    if task.purpose is Purpose.TIME:
        trainer.train_for_ever()
    if group.place is not None:
        reporter.send(_gradients_laid(group.place, trainer))
    keeper = trainer.start_keeping(group)
    nodes = None
    if rank is not None and has_peers:
        nodes = OneModel(rank, is_source=task.node == 0, local_rank=task.local_rank)
        nodes.agree(step.model)
    while trainer.progress.epoch < task.epochs:
        has_ended = trainer.train(keeper)
        step.agree()
        if not has_ended:
            break
        if nodes is not None:
            nodes.agree(step.model)
        trainer.validate()
    else:
        trainer.keep(keeper)
    if task.weights is not None and task.local_rank == 0:
        size = save_weights(step.model, Path(task.weights))
        reporter.send(WeightsSaved(path=task.weights, num_bytes=size))
    group.barrier()  # nobody waits for this worker any more, or reads from its memory
    keeper.close()
    step.close()


def _gradients_laid(place: Place, trainer: Trainer) -> GradientsLaid:
    return GradientsLaid(
        board_offset=place.board_offset,
        participants=place.participants,
        parameters=place.parameters,
        held=[held.to_json() for held in place.held],
        training_samples=trainer.num_samples,
        validation_samples=trainer.num_validation_samples,
    )


def _settle(task: Task) -> None:
    """Set this process up as its plan says, before the first operator starts any thread."""
    assert task.plan is not None
    if task.cores:
        os.sched_setaffinity(0, task.cores)
    torch.set_num_threads(task.plan.threads_per_process)
    torch.set_num_interop_threads(1)
    settle_precision(task.plan)
    settle_allocator(task.plan.allocator)
    if task.plan.compile:
        settle_compiler()
