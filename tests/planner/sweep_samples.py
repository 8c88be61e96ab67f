"""Sweeps with made-up times and accuracies, as they would be stored."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from sample_plan import SOFTWARE

from launch.plan import Plan
from launch.reports import EpochDone
from planner.sweeps.sweep_record import StoredSweep, SweepPoint, SweepRecord, SweepSetting
from planner.trials.result import Outcome
from probes.timing import Measurement

NOW = datetime(2026, 11, 20, 12, 30, tzinfo=UTC)
TRAIN, TEST = 6400, 10_000
SETTINGS = (
    SweepSetting(label="1 worker", plan=Plan(strategy="sequential", node_batch=1)),
    SweepSetting(
        label="2 workers",
        plan=Plan(strategy="processes", processes=2, replicas=2, node_batch=2),
    ),
)


def sample_record(batches: Sequence[int], settings: Sequence[SweepSetting] = SETTINGS):
    """A sweep without points."""
    return SweepRecord(
        created_at=NOW,
        use_case="digits",
        data=None,
        seed=0,
        epochs=2,
        batches=tuple(batches),
        settings=tuple(settings),
        node="vm",
        fingerprint="sha256:f",
        software=SOFTWARE,
        use_case_digest="sha256:d",
        train_samples=TRAIN,
        test_samples=TEST,
    )


def sample_point(
    batch: int,
    setting: int = 0,
    *,
    epoch_s: float = 10.0,
    accuracy: float | None = 0.98,
    loss: float = 0.1,
    turns: int = 24,
    noise: float = 0.02,
    side_by_side: str = "",
    settings: Sequence[SweepSetting] = SETTINGS,
) -> SweepPoint:
    """A point whose turns vary a little, the same way on every device setting of a batch."""
    drift = random.Random(batch)
    own = random.Random(batch + 1 + setting)
    step_s = epoch_s * batch / TRAIN
    times = [step_s * (1 + drift.gauss(0, noise)) * (1 + own.gauss(0, noise)) for _ in range(turns)]
    epochs = tuple(
        EpochDone(
            epoch=number,
            train_loss=2 * loss / number,
            validation_loss=loss,
            metrics={} if accuracy is None else {"accuracy": accuracy},
            samples=TRAIN,
            train_time_s=epoch_s,
            validation_time_s=1.0,
            throughput_samples_per_s=TRAIN / epoch_s,
            learning_rates=(0.01,),
        )
        for number in (1, 2)
    )
    return SweepPoint(
        created_at=NOW,
        plan=replace(settings[setting].plan, node_batch=batch),
        setting=setting,
        side_by_side=side_by_side or f"vm {batch}",
        outcome=Outcome.OK,
        measurement=Measurement(samples_s=tuple(times), rounds=tuple(range(1, turns + 1)))
        if turns
        else None,
        epochs=epochs,
        peak_memory_bytes=300_000_000,
        start_s=0.2,
        elapsed_s=2 * epoch_s + 2,
    )


def failed_point(batch: int, setting: int = 0, reason: str = "loss=inf at step 3") -> SweepPoint:
    """A point without a result."""
    point = sample_point(batch, setting, turns=0)
    return replace(point, outcome=Outcome.NAN_LOSS, epochs=(), reason=reason)


def sample_sweep(
    times: Mapping[int, Sequence[float]], accuracies: Mapping[int, float] | None = None
) -> StoredSweep:
    """A sweep of these seconds per epoch, one for each setting, by batch."""
    shares = accuracies or {}
    points = [
        sample_point(batch, number, epoch_s=epoch_s, accuracy=shares.get(batch, 0.98))
        for batch, of_settings in times.items()
        for number, epoch_s in enumerate(of_settings)
    ]
    record = replace(sample_record(list(times)), id=1, num_points=len(points), is_finished=True)
    return StoredSweep(record=record, points=points)
