"""Processor time of training together, beyond what training alone takes on each host.

Two hosts of one machine, see `tests/hosts/testbed`, train AlexNet: each by itself, and in one job
with the shares that follow from that. For both, the processor time of the worker and of the rank is
told per step. A rank that takes more than the sum itself does, or a worker that takes more than
alone, is time that the prediction must know of, or that could be had.
"""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from statistics import fmean

import psutil
from _block import Result, begin, make_parser, run_bench
from _hosts import Cluster
from _speeds import each_alone, predict_shares, together
from _turns import Turn
from testbed.bed import Testbed, TestHost

_ROUNDS, _TURN_S = 2, 20.0
_KINDS = {"worker": "launch.workers.fork_server", "rank": "launch.rank"}
"""Words of their command lines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A host's mean step in one turn."""

    time_s: float
    worker_s: float
    """Processor time."""
    rank_s: float


def main() -> int:
    """Measure and show."""
    parser = make_parser(__doc__, batch=(96, "of both hosts together"))
    parser.add_argument("--part", type=float, default=0.25, help="of a core, of host 2 (0.25)")
    parser.add_argument("--rate", default=None, help="of the links, such as 1gbit (no limit)")
    arguments, out = begin(parser)
    quotas = (None, None if arguments.part == 1 else arguments.part)
    with Testbed(2, cores=["0", "1"], quotas=quotas, rate=arguments.rate) as bed:
        results = _measure(Cluster(bed), arguments)
    return out.conclude(results)


def _measure(cluster: Cluster, arguments: Namespace) -> list[Result]:
    batch, parts = int(arguments.batch), (1.0, float(arguments.part))
    hosts = cluster.bed.hosts
    predicted = predict_shares(cluster, parts, batch, rounds=1, seconds=_TURN_S)
    shares = dict(zip(hosts, predicted.batches, strict=True))
    with ExitStack() as stack:
        jobs = [each_alone(shares), [together(shares)]]
        turns = [stack.enter_context(cluster.turn(job)) for job in jobs]
        found = [[_take(turn, hosts) for turn in turns] for _ in range(_ROUNDS)]
    step = Result("step together as predicted", predicted.step_s, "s")
    return [step] + [
        result
        for place, host in enumerate(hosts)
        for result in _results(host, shares[host], [[turn[place] for turn in r] for r in found])
    ]


def _take(turn: Turn, hosts: Sequence[TestHost]) -> list[Step]:
    """Let trainings go on, one job of all hosts or one of each; give the step of each host."""
    before, began_s = [_used_s(host) for host in hosts], time.monotonic()
    times = turn.take(_TURN_S)
    took_s = time.monotonic() - began_s
    steps = []
    for place, host in enumerate(hosts):
        time_s = times[min(place, len(times) - 1)]
        count = took_s / time_s
        used = {kind: (now - before[place][kind]) / count for kind, now in _used_s(host).items()}
        steps.append(Step(time_s=time_s, worker_s=used["worker"], rank_s=used["rank"]))
    return steps


def _used_s(host: TestHost) -> dict[str, float]:
    """Give the processor time that a host's workers, and its ranks, have had in all."""
    used = dict.fromkeys(_KINDS, 0.0)
    for pid in host.pids():
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            words, times = " ".join(process.cmdline()), process.cpu_times()
            for kind, word in _KINDS.items():
                if word in words:
                    used[kind] += times.user + times.system
    return used


def _results(host: TestHost, share: int, rounds: Sequence[Sequence[Step]]) -> list[Result]:
    name = f"host {host.number} ({share} samples)"
    alone, both = ([steps[place] for steps in rounds] for place in (0, 1))

    def mean(figure: str, values: Sequence[float]) -> Result:
        return Result(f"{name}: {figure}", fmean(values), "s")

    return [
        mean("step alone", [step.time_s for step in alone]),
        mean("step together", [step.time_s for step in both]),
        mean("processor time of the worker alone", [step.worker_s for step in alone]),
        mean("the same together", [step.worker_s for step in both]),
        mean("processor time of the rank together", [step.rank_s for step in both]),
    ]


if __name__ == "__main__":
    run_bench(main)
