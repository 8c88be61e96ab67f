"""Time to a held-out loss: the plan found for it, the one with most samples a second, a sweep.

Two searches come first: by throughput, and by time to a loss. Then each plan and each batch of the
sweep trains from several seeds, in turns. What counts is the time of the training steps until the
validation loss, between the ends of two short epochs, is as low as wanted: the samples until then,
at the rate of all trainings of the same plan. A training that does not come so low counts as one
that takes for ever.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

from _block import (
    CASES,
    BenchError,
    Ddlplan,
    Output,
    Result,
    begin,
    make_parser,
    root_option,
    run_bench,
)

from probes.timing import Interval, paired_ratio

_CASE = f"{CASES}:ShortEpochs"
_TARGET = 0.35
"""Validation loss."""

_SEEDS = 3
_EPOCHS, _LONGER = 12, 4
"""At most; and times as many where a larger batch keeps its learning rate."""

_SOONER, _NEAR = 0.6, 1.08
_FACTORS = (1, 2, 4, 8, 16)


def main() -> int:
    """Measure and show."""
    _, out = begin(make_parser(__doc__))
    with Ddlplan.in_own_folder() as ddlplan:
        results = list(_compare(ddlplan, out))
    return out.conclude(results)


@dataclass(slots=True)
class Contestant:
    """A plan with a batch, and what its trainings took."""

    name: str
    options: list[object]
    epochs: int
    time_s: float = 0.0
    """Of the training steps of all its trainings."""
    needed: list[float] = field(default_factory=list)
    """Samples until the target, by seed; infinite where it was not reached."""
    trained: list[int] = field(default_factory=list)
    """Samples of the whole training, by seed."""

    @property
    def rate(self) -> float:
        """Samples per second over all its trainings."""
        return sum(self.trained) / self.time_s

    @property
    def reached(self) -> int:
        """How many of its trainings reached the target."""
        return sum(map(math.isfinite, self.needed))

    def seconds(self) -> list[float]:
        """Time until the target, by seed, at the rate of all its trainings; it may be infinite."""
        return [needed / self.rate for needed in self.needed]

    def least_seconds(self) -> list[float]:
        """As `seconds`, with the time of the whole training where it did not reach the target."""
        pairs = zip(self.needed, self.trained, strict=True)
        return [min(needed, trained) / self.rate for needed, trained in pairs]


def _compare(ddlplan: Ddlplan, out: Output) -> Iterator[Result]:
    scaling = ["--lr-scaling", "linear"]
    fastest = _tune(ddlplan)
    soonest = _tune(ddlplan, "--objective", "time-to-loss", *scaling)
    for name, plan in (("throughput", fastest), ("time to loss", soonest)):
        out.say(f"{name}: plan {plan['id']}, batch {plan['node_batch']}, {plan['strategy']}")
    base = soonest["objective"]["base_batch"]
    out.say(f"noise scale {soonest['objective']['noise_scale']:.0f}, own batch {base}")
    largest = fastest["node_batch"]
    entered = [
        Contestant(
            "throughput plan",
            ["--plan", fastest["id"], "--lr-scaling", "none"],
            _EPOCHS * (_LONGER if largest > base else 1),
        ),
        Contestant("throughput plan, rate scaled", ["--plan", fastest["id"], *scaling], _EPOCHS),
        Contestant("time-to-loss plan", ["--plan", soonest["id"]], _EPOCHS),
        *(
            Contestant(
                f"batch {base * factor}",
                ["--plan", soonest["id"], "--global-batch", base * factor, *scaling],
                _EPOCHS,
            )
            for factor in _FACTORS
            if base * factor <= max(largest, 8 * base)
        ),
    ]
    for seed in range(_SEEDS):
        order = entered if seed % 2 == 0 else entered[::-1]
        for one in order:
            _train(ddlplan, one, seed)
            out.say(
                f"seed {seed}, {one.name}: {one.needed[-1]:.0f} samples at {one.rate:.0f} samples/s"
            )
    return _results(entered)


def _results(entered: list[Contestant]) -> Iterator[Result]:
    for one in entered:
        if one.reached < _SEEDS:
            said = f"{one.name}: of {_SEEDS} trainings reached the loss"
            yield Result(said, one.reached)
        yield Result(f"{one.name}: time to loss {_TARGET:g}", _over_seeds(one.seconds()), "s")
    plain, scaled, found, *sweep = entered
    # The one that reached the loss most often, and of these the soonest.
    best = min(sweep, key=lambda one: (-one.reached, fmean(one.least_seconds())))
    if not best.reached:
        raise BenchError("no batch of the sweep reached the loss")
    yield Result("time-to-loss plan / throughput plan", _ratio(found, plain), high=_SOONER)
    yield Result("the same, learning rate scaled alike", _ratio(found, scaled))
    yield Result(
        f"time-to-loss plan / best of the sweep ({best.name})", _ratio(found, best), high=_NEAR
    )


def _ratio(one: Contestant, other: Contestant) -> Interval | float:
    """Give how long one takes against another, over all seeds.

    Infinite where a training of the first did not reach the loss. One of the other that did not
    counts with the time it trained. It would have taken longer: the ratio is at most what is said.
    """
    if one.reached < len(one.needed):
        return math.inf
    ratio = paired_ratio(list(zip(one.seconds(), other.least_seconds(), strict=True)))
    return ratio if other.reached == len(other.needed) else replace(ratio, low=0.0)


def _over_seeds(seconds: list[float]) -> Interval:
    return Interval(median=fmean(seconds), low=min(seconds), high=max(seconds), count=len(seconds))


def _tune(ddlplan: Ddlplan, *more: object) -> Any:
    words = ("tune", "--use-case", _CASE, "--budget", "3m", *more)
    return ddlplan.run(*words, show_progress=True).data["plan"]


def _train(ddlplan: Ddlplan, one: Contestant, seed: int) -> None:
    """Train once more, and add what it took."""
    done = ddlplan.run(
        *("launch", "--use-case", _CASE, "--epochs", one.epochs),
        *("--seed", seed, *one.options, *root_option()),
    )
    samples, needed, before = 0, math.inf, None
    for epoch in done.data["epochs"]:
        samples += epoch["samples"]
        one.time_s += epoch["train_time_s"]
        loss = epoch["validation_loss"]
        if loss is None:
            continue
        if math.isinf(needed) and loss <= _TARGET:
            needed = _between(before, (samples, loss))
        before = (samples, loss)
    one.needed.append(needed)
    one.trained.append(samples)


def _between(before: tuple[int, float] | None, after: tuple[int, float]) -> float:
    """Give the samples after which the loss was as wanted, as if its logarithm fell evenly."""
    if before is None or before[1] <= after[1]:
        return float(after[0])
    part = math.log(before[1] / _TARGET) / math.log(before[1] / after[1])
    return before[0] + part * (after[0] - before[0])


if __name__ == "__main__":
    run_bench(main)
