"""Speedup of unequal hosts by shares that let all finish together.

Two hosts of one core each, on one machine: see `tests/hosts/testbed`. One of them may use its core
only half, or a quarter, of the time. AlexNet is trained on both, once with equal shares of the
batch, once with the shares that follow from what each host needs alone. Ideal is a gain of 1.5 at
2:1 and of 2.5 at 4:1. The second figure holds the job against the sum of what both do alone.
"""

from __future__ import annotations

from argparse import Namespace
from contextlib import ExitStack

from _block import Result, begin, make_parser, run_bench
from _hosts import Cluster
from _speeds import each_alone, predict_shares, together
from _turns import take_turns
from testbed.bed import Testbed

from probes.timing import paired_ratio

_REQUIRED = {2: 1.45, 4: 2.35}


def main() -> int:
    """Measure and show."""
    parser = make_parser(
        __doc__,
        batch=(128, "of both hosts together"),
        rounds=(6, "of turns"),
        seconds=(12, "that a turn takes"),
    )
    parser.add_argument("--ratios", default="2,4", help="of the speeds (2,4)")
    parser.add_argument("--only-sum", action="store_true", help="leave equal shares out")
    arguments, out = begin(parser)
    results: list[Result] = []
    with Testbed(2, cores=["0", "1"]) as bed:
        for ratio in map(int, arguments.ratios.split(",")):
            bed.set_quota(bed.hosts[1], 1 / ratio)
            found = _compare(Cluster(bed), ratio, arguments)
            out.show(found)
            results += found
    return out.conclude(results)


def _compare(cluster: Cluster, ratio: int, arguments: Namespace) -> list[Result]:
    rounds, seconds = int(arguments.rounds), float(arguments.seconds)
    batch = int(arguments.batch)
    hosts = cluster.bed.hosts
    parts = (1.0, 1 / ratio)
    predicted = predict_shares(cluster, parts, batch, rounds=rounds, seconds=seconds)
    ours = dict(zip(hosts, predicted.batches, strict=True))
    equal = dict(zip(hosts, (batch - batch // 2, batch // 2), strict=True))
    trainings = [[together(ours)], each_alone(ours)]
    if not arguments.only_sum:
        trainings.append([together(equal)])
    with ExitStack() as stack:
        turns = [stack.enter_context(cluster.turn(jobs)) for jobs in trainings]
        found = take_turns(turns, rounds=rounds, seconds=seconds)
    name = f"{ratio}:1"
    sums = [
        sum(share / time_s for share, time_s in zip(ours.values(), alone_s, strict=True))
        for _, alone_s, *_ in found
    ]
    results = [
        Result(f"{name}: share of host {number}", float(share), "samples")
        for number, share in enumerate(ours.values(), start=1)
    ]
    if not arguments.only_sum:
        pairs = [(equal_s[0], ours_s[0]) for ours_s, _, equal_s in found]
        low = _REQUIRED.get(ratio)
        results.append(Result(f"{name}: equal shares / ours", paired_ratio(pairs), low=low))
    rates = [batch / ours_s[0] for ours_s, *_ in found]
    return [
        *results,
        Result(
            f"{name}: ours / sum of both alone",
            paired_ratio(list(zip(rates, sums, strict=True))),
            low=0.95,
        ),
    ]


if __name__ == "__main__":
    run_bench(main)
