"""How well does the prediction say how fast hosts train together, and which of them should?

Hosts of one machine, see `tests/hosts/testbed`, of up to one core each, train AlexNet in many
settings: one to four hosts, of equal and unequal speed, over links of several rates, with several
batches. In each, what every host needs alone and what the network can do are measured as `tune` and
`probe --hosts` measure them. From these the throughput of all hosts, of the subset that is chosen
and of the fastest host alone is predicted, and held against what is then measured. A verdict is
wrong where what it chose is more than 5 % slower than another of these.

Hosts of one machine share its caches and its memory, which machines of their own do not. So in
every run all of them train: hosts that take no part in what is measured do so by themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median

from _block import Output, Required, Result, make_parser, positive, run_bench
from _hosts import Cluster
from _speeds import (
    GRADIENT_BYTES,
    PLAN,
    alone_at_once,
    cluster_node,
    measure_exchange,
    measure_lines,
    median_s,
)
from testbed.bed import Testbed

from launch.shares import StepTime
from planner.cluster import judge
from planner.exchange_time import Exchange
from planner.prediction import ClusterNode, Prediction, predict

_GAP = 0.05
_LEAST_BATCH = 8
_ABOUT_S_PER_SAMPLE = 0.075
_LEAST_STEPS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A cluster, and the batch that each host was tuned with."""

    cores: tuple[str, ...]
    quotas: tuple[float | None, ...]
    rate: str | None
    batch: int
    """Of a whole core."""

    @property
    def batches(self) -> list[int]:
        """What each host was tuned with: a part of a core has that part of the batch."""
        return [max(_LEAST_BATCH, round(self.batch * part)) for part in self.parts]

    @property
    def parts(self) -> list[float]:
        """Of a core that each host has."""
        return [1.0 if quota is None else quota for quota in self.quotas]

    @property
    def about_step_s(self) -> float:
        """About what the slowest host needs for its batch."""
        every = zip(self.batches, self.parts, strict=True)
        return max(batch / part for batch, part in every) * _ABOUT_S_PER_SAMPLE

    def __str__(self) -> str:
        speeds = "+".join(f"{1 if quota is None else quota:g}" for quota in self.quotas)
        return f"{speeds} cores, {self.rate or 'no limit'}, batch {self.batch}"


_ONE, _TWO = ("0",), ("0", "1")
_THREE, _FOUR = ("0", "1", "1"), ("0", "0", "1", "1")

SETTINGS = (
    Setting(cores=_ONE, quotas=(None,), rate=None, batch=32),
    Setting(cores=_TWO, quotas=(None, None), rate=None, batch=32),
    Setting(cores=_TWO, quotas=(None, None), rate="10gbit", batch=64),
    Setting(cores=_TWO, quotas=(None, None), rate="1gbit", batch=16),
    Setting(cores=_TWO, quotas=(None, None), rate="1gbit", batch=96),
    Setting(cores=_TWO, quotas=(None, None), rate="200mbit", batch=32),
    Setting(cores=_TWO, quotas=(None, 0.5), rate=None, batch=48),
    Setting(cores=_TWO, quotas=(None, 0.25), rate="1gbit", batch=64),
    Setting(cores=_TWO, quotas=(None, 0.1), rate="1gbit", batch=16),
    Setting(cores=_THREE, quotas=(None, 0.5, 0.5), rate=None, batch=32),
    Setting(cores=_THREE, quotas=(None, 0.5, 0.25), rate="1gbit", batch=64),
    Setting(cores=_FOUR, quotas=(0.5, 0.5, 0.5, 0.5), rate=None, batch=32),
    Setting(cores=_FOUR, quotas=(0.5, 0.5, 0.5, 0.25), rate="1gbit", batch=32),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A prediction beside what was measured, both in samples per second."""

    hosts: tuple[str, ...]
    predicted: float
    measured: float

    @property
    def error(self) -> float:
        """How far off the prediction was, relative to what was measured."""
        return abs(self.predicted / self.measured - 1)


def main() -> int:
    """Measure and show."""
    parser = make_parser(__doc__)
    parser.add_argument("--settings", type=positive, default=len(SETTINGS), help="how many (all)")
    parser.add_argument("--seconds", type=positive, default=20, help="timed in each run (20)")
    arguments = parser.parse_args()
    out = Output("cluster", as_json=arguments.json)
    out.introduce()
    errors: list[float] = []
    losses: list[float] = []
    for setting in SETTINGS[: arguments.settings]:
        chosen, every = _try(setting, arguments.seconds, out)
        best = max(held.measured for held in every)
        errors += [held.error for held in every]
        losses.append(1 - chosen.measured / best)
        for held in every:
            mark = "*" if held == chosen else " "
            out.say(
                f"{mark} {setting}: {' '.join(held.hosts)}: predicted {held.predicted:.1f} "
                f"samples/s, measured {held.measured:.1f} ({100 * held.error:.1f} % off)"
            )
    wrong = sum(loss > _GAP for loss in losses)
    return out.conclude(
        [
            Result(
                figure="error of the prediction, median",
                value=100 * median(errors),
                unit="%",
                required=Required(high=5.0),
            ),
            Result(
                figure="error of the prediction, worst",
                value=100 * max(errors),
                unit="%",
                required=Required(high=15.0),
            ),
            Result(
                figure=f"wrong verdicts of {len(losses)}",
                value=float(wrong),
                required=Required(high=0.0),
            ),
            Result(
                figure="chosen hosts behind the best, worst",
                value=100 * max(losses),
                unit="%",
                required=Required(high=3.0),
            ),
        ]
    )


def _try(setting: Setting, seconds: float, out: Output) -> tuple[Held, list[Held]]:
    """Predict and measure one setting; give what was chosen, and all that was measured.

    The speed of a virtual machine changes by some ten percent within minutes. So what the hosts
    need alone is measured again after each run. The verdict follows from what was measured first,
    what is held against a run from what was measured before and after it.
    """
    count = len(setting.cores)
    with Testbed(count, cores=setting.cores, quotas=setting.quotas, rate=setting.rate) as bed:
        cluster = Cluster(bed)
        steps = _num_steps(seconds, setting.about_step_s)
        exchange = measure_exchange(cluster, bed.hosts)
        lines = measure_lines(cluster, bed.hosts, setting.batches, steps)
        verdict = judge(_nodes(bed, setting, lines), exchange, GRADIENT_BYTES)
        worth = {one.hosts: one for one in _worth_measuring(verdict.chosen, verdict.predictions)}
        changes, held = [[1.0] * count], {}
        for hosts, one in worth.items():
            measured = _measure(cluster, setting, one, _num_steps(seconds, one.step_s))
            after_s = alone_at_once(cluster, bed.hosts, setting.batches, steps)
            changes.append(_changes(setting, lines, after_s))
            around = [(old + new) / 2 for old, new in zip(*changes[-2:], strict=True)]
            nodes = _nodes(bed, setting, [*map(_scaled, lines, around)])
            predicted = _predict(nodes, one, exchange).throughput_samples_per_s
            held[hosts] = Held(hosts=hosts, predicted=predicted, measured=measured)
        out.say(f"  {setting}: {_describe(lines, changes, exchange)}")
    return held[verdict.chosen.hosts], list(held.values())


def _num_steps(seconds: float, step_s: float) -> int:
    """Give how many steps to time: the speed of the machine changes, and a few say little of it."""
    return max(_LEAST_STEPS, round(seconds / step_s))


def _nodes(bed: Testbed, setting: Setting, lines: Sequence[StepTime]) -> list[ClusterNode]:
    return [
        cluster_node(host, line, batch, part)
        for host, line, batch, part in zip(
            bed.hosts, lines, setting.batches, setting.parts, strict=True
        )
    ]


def _changes(setting: Setting, lines: Sequence[StepTime], times_s: Sequence[float]) -> list[float]:
    """Say how many times as long each host needs for its batch as when it was measured first."""
    return [
        time_s / line.at(batch)
        for line, batch, time_s in zip(lines, setting.batches, times_s, strict=True)
    ]


def _describe(
    lines: Sequence[StepTime], changes: Sequence[Sequence[float]], exchange: Exchange | None
) -> str:
    """Say what the predictions rest on: steps of hosts alone, and the sums."""
    alone = [
        f"{time.fixed_s:.3f} s + {time.per_sample_s:.4f} s n, then "
        f"{', '.join(f'{change:.2f}' for change in later[1:])} times that"
        for time, later in zip(lines, zip(*changes, strict=True), strict=True)
    ]
    said = f"alone {'; '.join(alone)}"
    if exchange is None:
        return said
    sums = [f"{one.time_s:.3f} s, {one.cpu_s:.3f} s of a core" for one in exchange.measured.sums]
    return f"{said}; a sum over all takes {sums[0]}"


def _scaled(line: StepTime, factor: float) -> StepTime:
    return StepTime(fixed_s=factor * line.fixed_s, per_sample_s=factor * line.per_sample_s)


def _predict(
    nodes: Sequence[ClusterNode], shares: Prediction, exchange: Exchange | None
) -> Prediction:
    """Predict some of the nodes with shares that they have."""
    batches = dict(zip(shares.hosts, shares.batches, strict=True))
    fixed = [
        replace(node, floor=batches[node.host], cap=batches[node.host])
        for node in nodes
        if node.host in batches
    ]
    return predict(fixed, exchange, GRADIENT_BYTES, shares.global_batch)


def _worth_measuring(chosen: Prediction, found: Sequence[Prediction]) -> Iterator[Prediction]:
    """Give the chosen subset, all hosts, and the fastest host alone."""
    yield chosen
    yield max(found, key=lambda one: len(one.hosts))
    yield next(one for one in found if len(one.hosts) == 1)


def _measure(cluster: Cluster, setting: Setting, shares: Prediction, steps: int) -> float:
    """Train some hosts with their shares, and each of the others alone; give samples per second."""
    batches = dict(zip(shares.hosts, shares.batches, strict=True))
    tuned = {host: setting.batches[number] for number, host in enumerate(cluster.bed.hosts)}
    hosts = [host for host in tuned if host.name in batches]
    others = [host for host in tuned if host.name not in batches]
    plans = [replace(PLAN, node_batch=batches[host.name]) for host in hosts]
    with cluster.each_alone(others, [replace(PLAN, node_batch=tuned[host]) for host in others]):
        step_s = median_s(cluster.step_times_s(plans, steps, hosts=hosts))
    return shares.global_batch / step_s


if __name__ == "__main__":
    run_bench(main)
