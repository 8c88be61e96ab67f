"""Rates of trainings: samples per second with an interval, and how two of them compare."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from planner.records.training_record import TrainingRecord
from planner.records.usage_record import HostUsage
from planner.trials.drift import drift_deviation, rate_interval
from planner.worth.evidence import ratio_of_rates
from probes.timing import Interval, Measurement

_STRETCH_S = 5.0
"""Speeds of seconds that follow one another are alike, those of stretches of this length hardly:
see docs/search.md."""

_MOST_STRETCHES = 12
_LEAST_WITH_WARMUP = 4
"""Stretches from which on the first one, in which the workers get warm, is left out."""


def training_rate(record: TrainingRecord, usage: Mapping[str, HostUsage]) -> Interval | None:
    """Give the samples per second of a training with their 95 % interval.

    It is the median over stretches of the training, each of five seconds at least. One or two of
    them show nothing of their spread: their interval is from half to twice the rate. Where no use
    over time is stored, epochs take the place of stretches.

    Returns:
        ``None`` where nothing was trained.
    """
    first = usage.get(record.hosts[0].host) if record.hosts else None
    rates = [] if first is None else list(_stretch_rates(first))
    if not rates:
        rates = [e.throughput_samples_per_s for e in record.epochs_done if e.samples]
    return median_rate(rates)


def ratio_of_trainings(below: Interval, above: Interval) -> Interval:
    """Give the second rate / the first, of trainings that ran at different times.

    Each has the machine's drift in it: one plan, launched again, has another rate.
    """
    drift = drift_deviation(())
    return ratio_of_rates(rate_interval(below, drift), rate_interval(above, drift))


def median_rate(rates: Sequence[float]) -> Interval | None:
    """Give the median of rates with its interval; ``None`` where there are none above 0."""
    known = [rate for rate in rates if rate > 0]
    return Measurement(samples_s=tuple(known)).interval_s() if known else None


def _stretch_rates(use: HostUsage) -> Iterator[float]:
    """Give the mean rate of each stretch, those with the workers' warm-up left out."""
    if use.samples_per_s is None:
        return
    known = use.samples_per_s.lasting(use.time_s)
    whole_s = sum(length_s for _, length_s in known)
    stretch_s = max(_STRETCH_S, whole_s / _MOST_STRETCHES)
    found: list[float] = []
    samples = passed_s = 0.0
    for rate, length_s in known:
        samples, passed_s = samples + rate * length_s, passed_s + length_s
        if passed_s >= stretch_s:
            found.append(samples / passed_s)
            samples = passed_s = 0.0
    if not found and passed_s:
        found.append(samples / passed_s)
    yield from found[1:] if len(found) >= _LEAST_WITH_WARMUP else found
