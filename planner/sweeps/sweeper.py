"""Sweeper: trains every batch on every device setting, the settings of a batch side by side."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime

from launch.plan import Plan
from launch.strategies import check_plan
from planner.cancellation import Cancellation
from planner.sweeps.point_training import PointTraining, choose_turn
from planner.sweeps.reports import BatchProgress, PointDone
from planner.sweeps.sweep_record import StoredSweep, SweepPoint, SweepSetting
from planner.trials.reports import Listener
from planner.trials.runner import TrialRunner
from probes.hardware import Hardware


@dataclass(frozen=True, slots=True)
class Sweeper:
    """Trains the points of a sweep that are not stored yet."""

    sweep: StoredSweep
    node: Hardware
    runner: TrialRunner
    save_points: Callable[[Sequence[SweepPoint]], Sequence[SweepPoint]]
    listener: Listener
    cancellation: Cancellation
    now: Callable[[], datetime]

    def run(self) -> None:
        """Train until all points are there.

        Raises:
            CancelledError: The end was asked for; what is stored stays.
        """
        record = self.sweep.record
        for batch in spread(record.batches):
            missing = [
                number
                for number in range(len(record.settings))
                if self.sweep.find(batch, number) is None
            ]
            if missing:
                self._train_batch(batch, missing)

    def _train_batch(self, batch: int, settings: Sequence[int]) -> None:
        """Train a batch on these settings, which take turns; all are stored once all have ended."""
        record, begun = self.sweep.record, f"{platform.node()} {self.now().isoformat()}"
        with ExitStack() as opened:
            trainings = []
            for number in settings:
                training = PointTraining(
                    setting=number,
                    plan=with_batch(record.settings[number], batch),
                    samples=record.train_samples,
                    epochs=record.epochs,
                )
                opened.callback(training.close)
                trainings.append(training)
                self._tell(batch, trainings)
                training.start(self.runner)
                if training.failure is not None:
                    self._store([training], begun)
            self._take_turns(batch, trainings, begun)

    def _take_turns(self, batch: int, trainings: Sequence[PointTraining], begun: str) -> None:
        """Let trainings take turns, every other round in reverse, until all are done."""
        number, steps = 0, 1
        while running := [one for one in trainings if one.steps_left]:
            for training in running if number % 2 == 0 else running[::-1]:
                self.cancellation.check()
                turn = min(steps, training.steps_left)
                training.take_turn(number, turn, cores=self.node.cpu.usable_cores)
                if training.failure is not None:
                    self._store([training], begun)
            self._tell(batch, trainings)
            if number == 0 and (alive := [one for one in running if one.failure is None]):
                steps = choose_turn(alive)
            number += 1
        ended = [training for training in trainings if training.failure is None]
        # All before any is stored: killed between two, the sweep would train the second one alone.
        for training in ended:
            training.finish()
            training.close()
        if ended:
            self._store(ended, begun)

    def _store(self, trainings: Sequence[PointTraining], begun: str) -> None:
        """Store points together: where not all of them are stored, none is."""
        points = [training.make_point(begun, self.now()) for training in trainings]
        for point in self.save_points(points):
            self.listener(PointDone(point=point))

    def _tell(self, batch: int, trainings: Sequence[PointTraining]) -> None:
        settings = self.sweep.record.settings
        labels = tuple(settings[one.setting].label for one in trainings)
        alive = [one for one in trainings if one.failure is None] or trainings
        self.listener(
            BatchProgress(
                batch=batch,
                settings=labels,
                steps=min(one.steps_done for one in alive),
                total=alive[0].steps_per_epoch * alive[0].epochs,
            )
        )


def with_batch(setting: SweepSetting, batch: int) -> Plan:
    """Give the plan of a setting with a batch.

    Raises:
        InvalidPlanError: It cannot have it, as one of fewer samples than workers.
    """
    plan = replace(setting.plan, node_batch=batch)
    check_plan(plan)
    return plan


def spread(batches: Sequence[int]) -> list[int]:
    """Order batches such that a machine that gets slower does not look like an effect of the batch.

    Every other one upwards, then the others downwards: ``1 3 5 4 2``. A steady drift then shows as
    a zigzag from one batch to the next, and tilts no line through all of them.
    """
    ordered = sorted(batches)
    return ordered[::2] + ordered[1::2][::-1]
