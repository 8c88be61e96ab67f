"""Predictions of how fast hosts train together, and which should, held against trainings.

Hosts of one machine, see `tests/hosts/testbed`, of up to one core each, train AlexNet in many
settings. In each, what every host needs alone and what the network can do are measured as `tune`
and `probe --hosts` measure them. From these the throughput of all hosts and of the subset that is
chosen is predicted, and held against what is then measured. A verdict is wrong where what it chose
is more than 5 % slower than another of these, or than the fastest host alone.

Hosts of one machine share its caches and its memory, which machines of their own do not. So in
every run all of them train: hosts that take no part in what is measured do so by themselves.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from statistics import median

from _block import Output, Result, begin, make_parser, run_bench
from _hosts import Cluster, Trains
from _speeds import GRADIENT_BYTES, each_alone, measure_exchange, measure_nodes, together
from _turns import take_turns
from testbed.bed import Testbed, TestHost

from launch.shares import NodeLimits, StepTime
from planner.cluster.node_choice import choose_nodes
from planner.cluster.prediction import ClusterNode, Prediction, predict
from planner.cluster.sync_cost import SyncCostModel
from planner.report.nodes import link_notes
from probes.timing import Interval, paired_ratio

_GAP = 0.05
_LEAST_BATCH = 8


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

    def __str__(self) -> str:
        speeds = "+".join(f"{part:g}" for part in self.parts)
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
    measured: Interval
    """On the machine as fast as it was when what the prediction rests on was measured: by how much
    it has changed since is what the same hosts need alone in the next turn."""

    @property
    def error(self) -> float:
        """How far off the prediction was, relative to what was measured."""
        return abs(self.predicted / self.measured.median - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """What a setting gave."""

    fastest_alone: Prediction
    """Of one host. It rests on nothing but what was measured of the same host alone."""

    held: tuple[Held, ...]
    """Subsets that were trained, the chosen one first where it has several hosts."""

    chosen: tuple[str, ...]

    @property
    def loss(self) -> float:
        """How far what was chosen is behind the best, relative to the best."""
        found = {self.fastest_alone.hosts: self.fastest_alone.throughput_samples_per_s}
        found |= {held.hosts: held.measured.median for held in self.held}
        return 1 - found[self.chosen] / max(found.values())


def main() -> int:
    """Measure and show."""
    parser = make_parser(
        __doc__,
        first=(1, "setting to begin with"),
        last=(len(SETTINGS), "to end with"),
        rounds=(4, "of turns"),
        seconds=(8, "that a turn takes"),
    )
    arguments, out = begin(parser)
    every = []
    chosen = SETTINGS[arguments.first - 1 : arguments.last]
    if not chosen:
        parser.error(f"--first, --last: there are {len(SETTINGS)} settings")
    for setting in chosen:
        tried = _try(setting, arguments, out)
        every.append(tried)
        for held in tried.held:
            low, high = held.measured.low, held.measured.high
            out.say(
                f"{'*' if held.hosts == tried.chosen else ' '} {setting}: {' '.join(held.hosts)}: "
                f"predicted {held.predicted:.1f} samples/s, measured {held.measured.median:.1f} "
                f"({low:.1f} to {high:.1f}), {100 * held.error:.1f} % off"
            )
        out.say(
            f"  {setting}: chosen {' '.join(tried.chosen)}, {100 * tried.loss:.1f} % behind the "
            f"best; fastest alone {tried.fastest_alone.throughput_samples_per_s:.1f} samples/s"
        )
    errors = [held.error for tried in every for held in tried.held]
    losses = [tried.loss for tried in every]
    wrong = sum(loss > _GAP for loss in losses)
    return out.conclude(
        [
            Result(
                f"error of {len(errors)} predictions, median", 100 * median(errors), "%", high=5.0
            ),
            Result(f"error of {len(errors)} predictions, worst", 100 * max(errors), "%", high=15.0),
            Result(f"wrong verdicts of {len(losses)}", float(wrong), high=0.0),
            Result("chosen hosts behind the best, worst", 100 * max(losses), "%", high=3.0),
        ]
    )


def _try(setting: Setting, arguments: Namespace, out: Output) -> Tried:
    """Predict and measure one setting."""
    rounds, seconds = int(arguments.rounds), float(arguments.seconds)
    cores, quotas = setting.cores, setting.quotas
    with Testbed(len(cores), cores=cores, quotas=quotas, rate=setting.rate) as bed:
        cluster = Cluster(bed)
        exchange = measure_exchange(cluster, bed.hosts)
        tuned = dict(zip(bed.hosts, setting.batches, strict=True))
        with ExitStack() as stack:
            alone = stack.enter_context(cluster.turn(each_alone(tuned)))
            nodes = measure_nodes(
                cluster, tuned, setting.parts, alone, rounds=rounds, seconds=seconds
            )
            verdict = choose_nodes(nodes, exchange, GRADIENT_BYTES)
            out.say(f"  {setting}: {_describe(nodes, exchange)}")
            trained = _worth_training(verdict.chosen, verdict.predictions)
            jobs = [stack.enter_context(cluster.turn(_among_others(tuned, one))) for one in trained]
            found = take_turns([alone, *jobs], rounds=rounds, seconds=seconds)
    held = []
    for place, one in enumerate(trained, start=1):
        predicted = one.throughput_samples_per_s
        # Of each round, the step that the hosts alone let expect, and the one that the job took.
        steps_s = [
            (_predict(_slowed(nodes, turns[0]), one, exchange).step_s, turns[place][0])
            for turns in found
        ]
        measured = paired_ratio(
            [(predicted * expected_s, took_s) for expected_s, took_s in steps_s]
        )
        held.append(Held(hosts=one.hosts, predicted=predicted, measured=measured))
    fastest = next(one for one in verdict.predictions if len(one.hosts) == 1)
    return Tried(fastest_alone=fastest, held=tuple(held), chosen=verdict.chosen.hosts)


def _among_others(tuned: Mapping[TestHost, int], chosen: Prediction) -> list[Trains]:
    """Give a job of some hosts with their shares, and one of each other host alone."""
    shares = dict(zip(chosen.hosts, chosen.batches, strict=True))
    batches = {host: shares[host.name] for host in tuned if host.name in shares}
    others = {host: batch for host, batch in tuned.items() if host not in batches}
    return [together(batches), *each_alone(others)]


def _slowed(nodes: Sequence[ClusterNode], times_s: Sequence[float]) -> list[ClusterNode]:
    """Give the nodes as fast as they are now, by what each needs for its own batch."""
    factors = (
        time_s / node.time.at(node.tuned_batch) for node, time_s in zip(nodes, times_s, strict=True)
    )
    return [
        replace(
            node,
            time=StepTime(
                fixed_s=factor * node.time.fixed_s, per_sample_s=factor * node.time.per_sample_s
            ),
        )
        for node, factor in zip(nodes, factors, strict=True)
    ]


def _describe(nodes: Sequence[ClusterNode], exchange: SyncCostModel | None) -> str:
    """Say what the predictions rest on: steps of hosts alone, and the sums."""
    alone = [f"{node.time.fixed_s:.3f} s + {node.time.per_sample_s:.4f} s n" for node in nodes]
    said = f"alone {', '.join(alone)}"
    if exchange is None:
        return said
    one = exchange.measured.sums[-1]
    spent = zip(one.cpu_s, one.interrupts_s, strict=True)
    costs = [f"{cpu_s:.3f} + {interrupts_s:.3f} s" for cpu_s, interrupts_s in spent]
    return f"{said}; {', '.join(link_notes(exchange.measured))}, and {', '.join(costs)} of a core"


def _predict(
    nodes: Sequence[ClusterNode], shares: Prediction, exchange: SyncCostModel | None
) -> Prediction:
    """Predict some of the nodes with shares that they have."""
    batches = dict(zip(shares.hosts, shares.batches, strict=True))
    fixed = [
        replace(node, limits=NodeLimits(min_batch=share, max_batch=share))
        for node in nodes
        if (share := batches.get(node.host))
    ]
    return predict(fixed, exchange, GRADIENT_BYTES, shares.global_batch)


def _worth_training(chosen: Prediction, found: Sequence[Prediction]) -> list[Prediction]:
    """Give the chosen subset and all hosts, each once.

    What one host does alone among others is what the predictions rest on. Only where there is no
    other it is trained again, which shows how much two trainings of the same kind differ.
    """
    whole = max(found, key=lambda one: len(one.hosts))
    each = {one.hosts: one for one in (chosen, whole)}.values()
    return [one for one in each if len(one.hosts) > 1 or one is whole]


if __name__ == "__main__":
    run_bench(main)
