"""Step of replicas in one process, each on a thread of its own."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from functools import partial
from typing import TypeVar

import torch

from launch.checkpoints.training_state import TrainingState
from launch.data.batch import Batch, split_batch
from launch.data.samples import Part, count_usable_parts
from launch.data.split import BatchSize
from launch.local_group.group import LocalGroup, LocalThreadGroup
from launch.plan import Plan
from launch.training.averaging.aliases import copy_model
from launch.training.averaging.optimizer import make_optimizer
from launch.training.averaging.update_scope import find_update_scope
from launch.training.replica import prepare_model
from launch.training.shared_step import SharedStep
from launch.training.step import TrainStep
from launch.use_cases._base import UseCase

Result = TypeVar("Result")

_CAUSE_LIMIT_S = 1.0
"""Time for replicas that wait for a failed one to fail too."""


class ThreadedStep(TrainStep):
    """Replicas of a model, each driven by a Python thread of its own on its own cores."""

    part = Part(0, 1)

    def __init__(self, plan: Plan, case: UseCase, group: LocalGroup) -> None:
        self._case = case
        model = prepare_model(plan, case.model(), "cpu")
        threads = plan.threads_per_process // plan.replicas
        cores = [group.cores[i * threads : (i + 1) * threads] for i in range(plan.replicas)]
        models = [model, *(copy_model(model) for _ in range(1, plan.replicas))]
        # Here, one after the other: replicas share torch's random numbers, and the use case, where
        # a LightningModule lends its place for parameters to each optimizer that it makes.
        scope = find_update_scope(case.optimizer, model)
        optimizers = [make_optimizer(plan, case, one.parameters(), one) for one in models]
        self._members = LocalThreadGroup.create(cores, group, models)
        # One executor per replica and not one for all: a replica stays on its thread, and the
        # thread on its cores with the operator threads that it has started.
        self._executors = [
            ThreadPoolExecutor(
                1, f"replica{member.local_rank}", _pin_thread, (member.cores, threads)
            )
            for member in self._members
        ]
        self._replicas = self._on_all(
            [
                partial(SharedStep, plan, case, replica, member, optimizer=optimizer, scope=scope)
                for member, replica, optimizer in zip(
                    self._members, models, optimizers, strict=True
                )
            ]
        )
        self.model = model
        self.optimizers = [o for replica in self._replicas for o in replica.optimizers]

    def noise_obstacle(self) -> None:
        return

    def measure_noise(self, cost_limit: float) -> None:
        self._on_all([partial(replica.measure_noise, cost_limit) for replica in self._replicas])
        self.noise_meter = self._replicas[0].noise_meter

    def run(self, share: Batch | None, size: BatchSize) -> float:
        pieces = self._split(share)
        calls = [
            partial(replica.run, piece, size)
            for replica, piece in zip(self._replicas, pieces, strict=True)
        ]
        return self._on_all(calls)[0]

    def take_warning(self) -> str | None:
        return self._replicas[0].take_warning()

    def finish(self) -> None:
        self._on_all([replica.finish for replica in self._replicas])

    def place(self, batch: Batch) -> Batch:
        return self._replicas[0].place(batch)

    def describe_state(self) -> TrainingState:
        every = [replica.describe_state() for replica in self._replicas]
        return TrainingState(
            models=[state.models[0] for state in every],
            weights=every[0].weights,
            optimizers=[state.optimizers[0] for state in every],
        )

    def close(self) -> None:
        self._members[0].abort()
        for executor in self._executors:
            executor.shutdown(cancel_futures=True)

    def _split(self, share: Batch | None) -> list[Batch | None]:
        count = len(self._replicas)
        samples = 0 if share is None else self._case.size(share)
        parts = count_usable_parts(samples, count)
        pieces: list[Batch | None] = split_batch(share, parts, samples) if samples else []
        return pieces + [None] * (count - len(pieces))

    def _on_all(self, calls: Sequence[Callable[[], Result]]) -> list[Result]:
        """Run one call on each replica's thread; the first failure ends the others and is raised.

        The others fail too, at the barrier: that is a consequence, not a cause. One that waits for
        other nodes does not: the end of the process ends it.
        """
        futures = [
            executor.submit(call) for executor, call in zip(self._executors, calls, strict=True)
        ]
        done, _ = wait(futures, return_when=FIRST_EXCEPTION)
        if any(future.exception() for future in done):
            self._members[0].abort()
            done, _ = wait(futures, timeout=_CAUSE_LIMIT_S)
        errors = [error for future in done if (error := future.exception())]
        causes = [error for error in errors if not isinstance(error, threading.BrokenBarrierError)]
        if errors:
            raise (causes or errors)[0]
        return [future.result() for future in futures]


def _pin_thread(cores: tuple[int, ...], threads: int) -> None:
    """Pin the calling thread, and by inheritance its operator threads, to its cores.

    ``torch.set_num_threads`` holds for the calling thread alone, as OpenMP's setting does.
    """
    if cores:
        os.sched_setaffinity(0, cores)
    torch.set_num_threads(threads)
