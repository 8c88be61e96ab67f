"""Findings of a sweep: where more devices pay, where larger batches do, where accuracy falls.

A finding is made only where intervals show it. Times of settings at one batch are compared turn by
turn, which leaves out what slowed both. Times of different batches were taken minutes apart, so
that their intervals have the machine's drift in them. Accuracies have the interval of a share of
the test samples; one training with one seed shows nothing of other seeds.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

from planner.quantities import format_count, format_number
from planner.sweeps.sweep_record import StoredSweep, SweepPoint
from planner.trials.comparison import compare_results, ratio_interval
from planner.trials.drift import drift_deviation, rate_interval
from planner.trials.result import Outcome
from probes.timing import NORMAL_95, Interval, Measurement

ACCURACY = "accuracy"
"""Metric of a use case that is the share of samples with the right answer."""

_WORTH_SAYING = 0.1
"""Part of the turns, as of a search."""

_LEAST_TURNS = 4
"""Fewer show too little of their spread."""

_WORTHWHILE = 1.05
"""More devices that are shown to gain less than this do not pay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PointFigures:
    """What a point of a sweep shows, with 95 % intervals."""

    point: SweepPoint
    epoch_s: Interval | None
    """Time of an epoch's steps: reading, computing, averaging, waiting. Without the first steps,
    the start and the validation. ``None`` where too few turns counted."""

    rough_epoch_s: float | None
    """The same without an interval, also of few turns; ``None`` where none counted."""

    speedup: Interval | None
    """Time of the first setting at this batch / its own, turn by turn; ``None`` of the first
    setting itself, and where they did not take turns with each other."""

    accuracy: Interval | None
    """On the test set after the last epoch, 0 to 1; ``None`` where the use case gives none."""

    loss: float | None
    """On the test set after the last epoch."""


def point_figures(sweep: StoredSweep, point: SweepPoint) -> PointFigures:
    """Give what a point shows."""
    epoch = point.last_epoch
    loss = None if epoch is None else epoch.validation_loss
    known = point.measurement if point.outcome is Outcome.OK else None
    steps = sweep.record.train_samples / point.batch
    return PointFigures(
        point=point,
        epoch_s=None if known is None else _epoch_time(sweep, point, known),
        rough_epoch_s=None if known is None else steps * known.median_s,
        speedup=_speedup(sweep, point),
        accuracy=_accuracy(sweep, point),
        loss=loss if loss is not None and math.isfinite(loss) else None,
    )


def all_figures(sweep: StoredSweep) -> list[PointFigures]:
    """Give what each point shows, by batch and setting."""
    return [point_figures(sweep, point) for point in sweep.points]


def why_no_speedup(sweep: StoredSweep, point: SweepPoint) -> str:
    """Say why a point that succeeded, not of the first setting, has no speedup over it."""
    first, label = sweep.find(point.batch, 0), sweep.record.settings[0].label
    if first is None:
        return f"{label}: not trained yet with this batch"
    if first.outcome is not Outcome.OK:
        return f"{label} failed: {first.reason or first.outcome.words}"
    if first.side_by_side != point.side_by_side:
        return f"not run side by side with {label}"
    return f"too few turns beside {label}"


def find_sentences(sweep: StoredSweep) -> list[str]:
    """Say in words what a sweep shows; nothing where intervals show nothing."""
    figures = all_figures(sweep)
    found = [
        *_pay_sentences(sweep, figures),
        *_epoch_sentences(sweep, figures),
        *_accuracy_sentences(sweep, figures),
        *_failure_sentences(sweep),
        *_disturbance_sentences(sweep),
    ]
    return [f"{text[0].upper()}{text[1:]}." for text in found]


def _epoch_time(sweep: StoredSweep, point: SweepPoint, known: Measurement) -> Interval | None:
    steps = sweep.record.train_samples / point.batch
    logs = [math.log(steps * time_s) for time_s in known.samples_s]
    if len(logs) < _LEAST_TURNS or (turns := ratio_interval(logs)) is None:
        return None
    together = [one for one in sweep.points if one.side_by_side == point.side_by_side]
    time = rate_interval(turns, drift_deviation(together))
    # Where others computed beside its turns, it is shorter without them, by how much is not known.
    return replace(time, low=time.low / known.most_slowed)


def _speedup(sweep: StoredSweep, point: SweepPoint) -> Interval | None:
    first = sweep.find(point.batch, 0)
    if first is None or point.setting == 0 or first.side_by_side != point.side_by_side:
        return None
    if point.outcome is not Outcome.OK or first.outcome is not Outcome.OK:
        return None
    gain = compare_results(first, point)
    return None if gain is None or gain.count < _LEAST_TURNS else gain


def _accuracy(sweep: StoredSweep, point: SweepPoint) -> Interval | None:
    epoch = point.last_epoch
    share = None if epoch is None else epoch.metrics.get(ACCURACY)
    if share is None or not 0 <= share <= 1 or not sweep.record.test_samples:
        return None
    return share_interval(share, sweep.record.test_samples)


def share_interval(share: float, samples: int, *, quantile: float = NORMAL_95) -> Interval:
    """Give the interval of a share of samples, by default with 95 %.

    Source: Wilson, "Probable inference, the law of succession, and statistical inference", 1927.
    """
    squared = quantile**2
    centre = (share + squared / (2 * samples)) / (1 + squared / samples)
    half = (
        quantile
        * math.sqrt(share * (1 - share) / samples + squared / (4 * samples**2))
        / (1 + squared / samples)
    )
    return Interval(
        median=share,
        low=min(share, max(0.0, centre - half)),
        high=max(share, min(1.0, centre + half)),
        count=samples,
    )


def is_lower(one: Interval, other: Interval) -> bool:
    """Tell whether one share is shown to be lower than another.

    Source: Newcombe, "Interval estimation for the difference between independent proportions",
    1998, method 10.
    """
    gap = other.median - one.median
    return gap > math.hypot(other.median - other.low, one.high - one.median)


def _pay_sentences(sweep: StoredSweep, figures: Sequence[PointFigures]) -> Iterator[str]:
    settings, batches = sweep.record.settings, sweep.record.batches
    first = settings[0].label
    for number, setting in enumerate(settings[1:], 1):
        known = {one.point.batch: one.speedup for one in figures if one.point.setting == number}
        gains = {b: gain for b in batches if (gain := known.get(b)) is not None}
        paying = [b for b, gain in gains.items() if gain.low > 1]
        idle = [b for b, gain in gains.items() if gain.low <= 1 and gain.high <= _WORTHWHILE]
        do = "do" if setting.label.endswith("s") else "does"
        if paying:
            at = max(paying, key=lambda b: gains[b].median)
            yield (
                f"with {setting.label}, an epoch is shown to be shorter than with {first} at "
                f"{list_batches(paying, batches)}: most at batch {at}, {_times(gains[at])} as fast"
            )
        if below := [b for b in idle if paying and b < paying[0]]:
            yield (
                f"{setting.label} {do} not pay below batch {paying[0]}: {_times(gains[below[-1]])} "
                f"as fast as {first} at batch {below[-1]}"
            )
        if above := [b for b in idle if paying and b > paying[-1]]:
            stop = "stop" if setting.label.endswith("s") else "stops"
            yield (
                f"{setting.label} {stop} paying above batch {paying[-1]}: "
                f"{_times(gains[above[0]])} as fast as {first} at batch {above[0]}"
            )
        if idle and not paying:
            at = max(idle, key=lambda b: gains[b].median)
            yield (
                f"{setting.label} {do} not pay at {list_batches(idle, batches)}: at most "
                f"{_times(gains[at])} as fast as {first}, at batch {at}"
            )


def _epoch_sentences(sweep: StoredSweep, figures: Sequence[PointFigures]) -> Iterator[str]:
    for number, setting in enumerate(sweep.record.settings):
        times = {
            one.point.batch: one.epoch_s
            for one in figures
            if one.point.setting == number and one.epoch_s is not None
        }
        if len(times) < 2:
            continue
        unbeaten = [b for b, t in times.items() if not any(o.high < t.low for o in times.values())]
        best = min(unbeaten)
        smallest = min(times)
        said = f"with {setting.label}, no batch is shown to be faster than batch {best}: "
        said += f"{_seconds(times[best])} for an epoch"
        if best != smallest:
            said += f", against {_seconds(times[smallest])} at batch {smallest}"
        slower = [b for b in times if b > best and times[b].low > times[best].high]
        later = [b for b in times if b >= min(slower, default=math.inf)]
        if slower and set(later) == set(slower):
            said += f"; from batch {slower[0]} on epochs are longer again"
        yield said


def _accuracy_sentences(sweep: StoredSweep, figures: Sequence[PointFigures]) -> Iterator[str]:
    """Say the same of several settings once: one fall, or none up to one batch."""
    found: defaultdict[tuple[int, int] | int, dict[str, Mapping[int, Interval]]]
    found = defaultdict(dict)
    for number, setting in enumerate(sweep.record.settings):
        shares = {
            one.point.batch: one.accuracy
            for one in figures
            if one.point.setting == number and one.accuracy is not None
        }
        if len(shares) >= 2:
            found[find_fall(shares) or max(shares)][setting.label] = shares
    for fall, by_label in found.items():
        if isinstance(fall, tuple):
            text = _describe_fall(sweep, fall, by_label)
        else:
            text = f"no fall of accuracy is shown up to batch {fall}"
        is_all = len(by_label) == len(sweep.record.settings)
        yield text if is_all else f"with {' and '.join(by_label)}, {text}"


def _describe_fall(
    sweep: StoredSweep, fall: tuple[int, int], by_label: Mapping[str, Mapping[int, Interval]]
) -> str:
    start, best = fall
    values = {
        label: f"{percent(shares[start])}, against {percent(shares[best])} at batch {best}"
        for label, shares in by_label.items()
    }
    each = [f"{value} with {label}" for label, value in values.items()]
    return (
        f"accuracy falls from batch {start} on at this learning rate{_rate(sweep)} and with "
        f"seed {sweep.record.seed}: after {format_count(sweep.record.epochs, 'epoch')} "
        + "; ".join(each if len(each) > 1 else values.values())
    )


def find_fall(shares: Mapping[int, Interval]) -> tuple[int, int] | None:
    """Give the batch from which on all are shown to be less accurate, and the most accurate one.

    The most accurate one is known only afterwards, so that any two batches may be the ones that
    are compared: over all pairs, a fall is said by chance with 5 % at most. Source: Dunn,
    "Multiple comparisons among means", 1961, which is Bonferroni's inequality.

    Returns:
        ``None`` where it is not shown of the largest batch.
    """
    pairs = math.comb(len(shares), 2)
    quantile = NormalDist().inv_cdf(1 - 0.05 / (2 * pairs)) if pairs else NORMAL_95
    wide = {b: share_interval(s.median, s.count, quantile=quantile) for b, s in shares.items()}
    best = max(shares, key=lambda batch: (shares[batch].median, -batch))
    start = None
    for batch in sorted(shares, reverse=True):
        if batch <= best or not is_lower(wide[batch], wide[best]):
            break
        start = batch
    return None if start is None else (start, best)


def _failure_sentences(sweep: StoredSweep) -> Iterator[str]:
    for point in sweep.points:
        if point.outcome is not Outcome.OK:
            label = sweep.record.settings[point.setting].label
            yield f"batch {point.batch} with {label} failed, {point.outcome.words}: {point.reason}"


def _disturbance_sentences(sweep: StoredSweep) -> Iterator[str]:
    measured = [one.measurement for one in sweep.points if one.measurement is not None]
    turns = sum(len(one.samples_s) for one in measured)
    disturbed = sum(len(one.disturbed) for one in measured)
    if disturbed > _WORTH_SAYING * turns:
        yield (
            f"other programs or machines disturbed {100 * disturbed / turns:.0f} % of the turns: "
            "repeat the sweep with --fresh when they have ended"
        )


def list_batches(batches: Sequence[int], every: Sequence[int]) -> str:
    """Name batches of a sweep, neighbours as a range: ``batches 32 to 256, 1024``."""
    places = [every.index(batch) for batch in sorted(batches)]
    parts: list[list[int]] = []
    for place in places:
        if parts and place == parts[-1][-1] + 1:
            parts[-1].append(place)
        else:
            parts.append([place])
    texts = [
        str(every[part[0]]) if len(part) == 1 else f"{every[part[0]]} to {every[part[-1]]}"
        for part in parts
    ]
    return ("batch " if len(batches) == 1 else "batches ") + ", ".join(texts)


def percent(share: Interval) -> str:
    """Write a share with its interval: ``98.1 % (97.8 to 98.4)``."""
    values = (100 * value for value in (share.median, share.low, share.high))
    median, low, high = (f"{value:.1f}" for value in values)
    return f"{median} % ({low} to {high})"


def _times(gain: Interval) -> str:
    return f"{gain.median:.2f} times ({gain.low:.2f} to {gain.high:.2f})"


def _seconds(time_s: Interval) -> str:
    values = (time_s.median, time_s.low, time_s.high)
    median, low, high = (format_number(value) for value in values)
    return f"{median} s ({low} to {high})"


def _rate(sweep: StoredSweep) -> str:
    """Name the learning rate where it is known to be that of all batches from start to end.

    Epochs tell the rate of their last step: of a single one it says nothing about its start.
    """
    trained = [one.epochs for one in sweep.points if one.last_epoch is not None]
    rates = {epoch.learning_rates for epochs in trained for epoch in epochs}
    if (
        any(len(epochs) < 2 for epochs in trained)
        or len(rates) != 1
        or len(rate := rates.pop()) != 1
    ):
        return ""
    return f" of {rate[0]:g}"
