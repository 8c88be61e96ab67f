"""Sweep over workers: the same training with more and more of them, its speed and its accuracy."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from launch.reports import EpochDone
from planner.paper_tables._evidence import StoredEvidence
from planner.paper_tables._reasons import measure_command
from planner.paper_tables._values import Cell, TableColumn
from planner.quantities import format_count
from planner.sweeps.findings import ACCURACY, PointFigures, all_figures, why_no_speedup
from planner.sweeps.sweep_record import StoredSweep, SweepRecord
from planner.trials.result import Outcome
from probes.timing import Interval

TARGETS = (0.9, 0.85, 0.8, 0.75, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2)
"""Accuracies to reach: the highest that all have reached who are compared, else that any has."""

WORKER_COLUMNS = (
    TableColumn(key="machine", title="Machine"),
    TableColumn(key="data", title="Data", may_drop=True),
    TableColumn(key="devices", title="Workers"),
    TableColumn(key="batch", title="Batch", is_number=True, may_drop=True),
    TableColumn(key="published", title="Published", is_number=True, may_drop=True),
    TableColumn(key="rate", title="Samples/s", is_number=True),
    TableColumn(key="scaling", title="Times one worker", is_number=True),
    TableColumn(key="target", title="Accuracy to reach, %", is_number=True),
    TableColumn(key="time", title="s to it", is_number=True),
    TableColumn(key="accuracy", title="Last accuracy, %", is_number=True),
)


def begins_with_one_worker(record: SweepRecord) -> bool:
    """Tell whether the setting that others are compared with is one worker, or one GPU."""
    first = record.settings[0]
    return first.plan_id is None and first.plan.processes == 1


@dataclass(frozen=True, slots=True)
class WorkerSweep:
    """A sweep whose points of one batch differ in the number of their workers."""

    sweep: StoredSweep

    @property
    def target(self) -> float | None:
        """Test accuracy to reach; ``None`` where not even the lowest one was."""
        reached = [best_accuracy(point.epochs) for point in self.sweep.points if point.last_epoch]
        for least in (min(reached, default=0.0), max(reached, default=0.0)):
            if (found := next((t for t in TARGETS if t <= least), None)) is not None:
                return found
        return None

    def rows(self, held: StoredEvidence) -> Iterator[Mapping[str, Cell]]:
        """Give a row for each number of workers."""
        record = self.sweep.record
        for one in all_figures(self.sweep):
            yield {
                "machine": Cell(text=record.node),
                "data": Cell(text=record.data or "generated"),
                "devices": Cell(text=record.settings[one.point.setting].label),
                "batch": Cell.counted(one.point.batch),
                "published": Cell.published(None),
                **self._figures(held, one),
            }

    def points(self, batch: int, *, to_target: bool) -> list[tuple[int, Interval]]:
        """Give samples per second, or the time to the target, over the number of workers.

        Stored plans are left out, which differ in more than their workers.
        """
        settings, value = self.sweep.record.settings, self._time if to_target else self._rate
        return [
            (one.point.plan.processes, y)
            for one in all_figures(self.sweep)
            if one.point.batch == batch and settings[one.point.setting].plan_id is None
            if (y := value(one)) is not None
        ]

    def _figures(self, held: StoredEvidence, one: PointFigures) -> Mapping[str, Cell]:
        if one.point.outcome is not Outcome.OK:
            return {"rate": Cell.lacking(one.point.reason or str(one.point.outcome))}
        cells = {"rate": Cell.of(self._rate(one), "too few turns counted")}
        if not begins_with_one_worker(self.sweep.record):
            sweep = f"sweep {self.sweep.record.id} has no setting with one worker"
            cells["scaling"] = Cell.lacking(f"{sweep}: {measure_command(held)}")
        elif one.point.setting:  # the first is what others are compared with
            cells["scaling"] = Cell.of(one.speedup, why_no_speedup(self.sweep, one.point))
        if (target := self.target) is not None:
            cells["target"] = Cell.counted(100 * target)
        cells["time"] = Cell.of(self._time(one), self._why_no_time(one))
        if one.accuracy is not None:
            cells["accuracy"] = Cell.measured(one.accuracy.scaled(100))
        return cells

    def _rate(self, one: PointFigures) -> Interval | None:
        epoch_s = one.epoch_s
        return None if epoch_s is None else epoch_s.reciprocal(self.sweep.record.train_samples)

    def _time(self, one: PointFigures) -> Interval | None:
        """Give the time to the target; its interval is the one that the time of its steps has."""
        if self.target is None or one.epoch_s is None:
            return None
        time_s = time_to_accuracy(one.point.epochs, self.target)
        return None if time_s is None else one.epoch_s.scaled(time_s / one.epoch_s.median)

    def _why_no_time(self, one: PointFigures) -> str:
        best, target = best_accuracy(one.point.epochs), self.target or TARGETS[-1]
        if best >= target:
            return "too few turns counted"
        epochs = format_count(len(one.point.epochs), "epoch")
        return f"{100 * best:.0f} % after {epochs}, and {100 * target:g} % is to be reached"


def time_to_accuracy(epochs: Sequence[EpochDone], target: float) -> float | None:
    """Give the time of the epochs up to the first that has an accuracy, ``None`` without one."""
    times = accumulate(epoch.train_time_s + epoch.validation_time_s for epoch in epochs)
    pairs = zip(epochs, times, strict=True)
    return next((time_s for epoch, time_s in pairs if _accuracy_of(epoch) >= target), None)


def best_accuracy(epochs: Sequence[EpochDone]) -> float:
    """Give the highest accuracy of some epochs; 0 where none was measured."""
    return max(map(_accuracy_of, epochs), default=0.0)


def _accuracy_of(epoch: EpochDone) -> float:
    """Give the accuracy of an epoch; 0 where none was measured, or it is no number."""
    accuracy = epoch.metrics.get(ACCURACY, 0.0)
    return 0.0 if math.isnan(accuracy) else accuracy
