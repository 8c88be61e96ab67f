"""How well does the prediction say how fast hosts train together, and which of them should?

Hosts of one machine, see `tests/hosts/testbed`, of up to one core each, train AlexNet in many
settings: one to four hosts, of equal and unequal speed, over links of several rates, with several
batches. In each, what every host needs alone and what the network can do are measured as `tune` and
`probe --hosts` measure them. From these the throughput of all hosts, of the subset that is chosen
and of the fastest host alone is predicted, and held against what is then measured. A verdict is
wrong where what it chose is more than 5 % slower than another of these.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A cluster, and the batch that each host was tuned with."""

    cores: tuple[str, ...]
    quotas: tuple[float | None, ...]
    rate: str | None
    batch: int

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
    parser.add_argument("--steps", type=positive, default=6, help="timed in each run (6)")
    arguments = parser.parse_args()
    out = Output("cluster", as_json=arguments.json)
    out.introduce()
    errors: list[float] = []
    losses: list[float] = []
    for setting in SETTINGS[: arguments.settings]:
        chosen, every = _try(setting, arguments.steps, out)
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


def _try(setting: Setting, steps: int, out: Output) -> tuple[Held, list[Held]]:
    """Predict and measure one setting; give what was chosen, and all that was measured.

    The speed of a virtual machine changes by some ten percent within minutes. So what the hosts
    need alone is measured before and after; the verdict follows from the former, what is held
    against the measurements from both.
    """
    count = len(setting.cores)
    with Testbed(count, cores=setting.cores, quotas=setting.quotas, rate=setting.rate) as bed:
        cluster = Cluster(bed)
        batches = [setting.batch] * count
        before = measure_lines(cluster, bed.hosts, batches, steps)
        exchange = measure_exchange(cluster, bed.hosts)
        verdict = judge(_nodes(bed, setting, before), exchange, GRADIENT_BYTES)
        worth = {one.hosts: one for one in _worth_measuring(verdict.chosen, verdict.predictions)}
        measured = {hosts: _measure(cluster, one, steps) for hosts, one in worth.items()}
        after_s = alone_at_once(cluster, bed.hosts, batches, steps)
        changes = [s / line.at(setting.batch) for line, s in zip(before, after_s, strict=True)]
        out.say(f"  {setting}: {_describe(before, changes, exchange)}")
        nodes = _nodes(bed, setting, [*map(_halfway, before, changes)])
        held = {
            hosts: Held(
                hosts=hosts,
                predicted=_predict(nodes, one, exchange).throughput_samples_per_s,
                measured=measured[hosts],
            )
            for hosts, one in worth.items()
        }
    return held[verdict.chosen.hosts], list(held.values())


def _nodes(bed: Testbed, setting: Setting, lines: Sequence[StepTime]) -> list[ClusterNode]:
    return [
        cluster_node(host, line, setting.batch, 1.0 if quota is None else quota)
        for host, line, quota in zip(bed.hosts, lines, setting.quotas, strict=True)
    ]


def _describe(
    before: Sequence[StepTime], changes: Sequence[float], exchange: Exchange | None
) -> str:
    """Say what the predictions rest on: steps of hosts alone, before and after, and the sums."""
    lines = [
        f"{time.fixed_s:.3f} s + {time.per_sample_s:.4f} s n, then {change:.2f} times that"
        for time, change in zip(before, changes, strict=True)
    ]
    said = f"alone {', '.join(lines)}"
    if exchange is None:
        return said
    sums = [f"{one.time_s:.3f} s, {one.cpu_s:.3f} s of a core" for one in exchange.measured.sums]
    return f"{said}; a sum over all takes {sums[0]}"


def _halfway(before: StepTime, change: float) -> StepTime:
    """Give a host's steps in between, where they changed by a factor."""
    factor = (1 + change) / 2
    return StepTime(fixed_s=factor * before.fixed_s, per_sample_s=factor * before.per_sample_s)


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


def _measure(cluster: Cluster, shares: Prediction, steps: int) -> float:
    """Train some hosts with their shares; give samples per second."""
    by_name = {host.name: host for host in cluster.bed.hosts}
    plans = [replace(PLAN, node_batch=batch) for batch in shares.batches]
    hosts = [by_name[name] for name in shares.hosts]
    step_s = median_s(cluster.step_times_s(plans, steps, hosts=hosts))
    return shares.global_batch / step_s


if __name__ == "__main__":
    run_bench(main)
