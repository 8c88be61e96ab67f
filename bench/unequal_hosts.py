"""What do shares by speed gain where hosts are unequal, and what is lost against each host alone?

Two hosts of a core each on one machine, the second slowed down by a quota of its control group to a
half and to a quarter. AlexNet with one and the same global batch, in equal shares and in those
that let both finish together, by the times that each host takes alone for two batches. Then the
throughput is held against the sum of what both do alone at the same time.
"""

from __future__ import annotations

from dataclasses import replace

from _block import Output, Required, Result, alternate, make_parser, positive, run_bench
from _hosts import Cluster
from testbed.bed import Testbed
from two_hosts import PLAN

from launch.shares import StepTime, equalise, fit_step_time
from probes.timing import Measurement, paired_ratio

_REQUIRED = {2: 1.45, 4: 2.35}
"""By how many times the second host is slower: the gain over equal shares."""


def main() -> int:
    """Measure and show."""
    parser = make_parser(__doc__)
    parser.add_argument("--global-batch", type=positive, default=256, help="over both hosts (256)")
    parser.add_argument("--blocks", type=positive, default=2, help="of four runs each (2)")
    parser.add_argument("--steps", type=positive, default=5, help="timed in each run (5)")
    arguments = parser.parse_args()
    out = Output("unequal_hosts", as_json=arguments.json)
    out.introduce()
    results: list[Result] = []
    with Testbed(2, cores=["0", "1"]) as bed:
        for slower in _REQUIRED:
            bed.set_quota(bed.hosts[1], 1 / slower)
            cluster = Cluster(bed)
            results += _judge(
                cluster, slower, arguments.global_batch, arguments.blocks, arguments.steps, out
            )
    return out.conclude(results)


def _judge(
    cluster: Cluster, slower: int, global_batch: int, blocks: int, steps: int, out: Output
) -> list[Result]:
    times = _times_alone(cluster, global_batch // 2, steps)
    shares = equalise(times, global_batch)
    half = global_batch // 2
    out.say(f"{slower}:1, shares {shares[0]} and {shares[1]}")

    def train(batches: tuple[int, ...]) -> float:
        plans = [replace(PLAN, node_batch=batch) for batch in batches]
        measured = cluster.step_times_s(plans, steps)
        return Measurement(samples_s=tuple(measured)).median_s

    pairs = list(alternate(lambda: train((half, half)), lambda: train(shares), blocks=blocks))
    alone = sum(n / t.at(n) for t, n in zip(times, shares, strict=True))
    again = _times_alone(cluster, global_batch // 2, steps)
    alone = (alone + sum(n / t.at(n) for t, n in zip(again, shares, strict=True))) / 2
    return [
        Result(
            figure=f"{slower}:1, step time of equal shares / ours",
            value=paired_ratio(pairs),
            required=Required(low=_REQUIRED[slower]),
        ),
        Result(
            figure=f"{slower}:1, throughput / sum of the hosts alone",
            value=paired_ratio([(global_batch / ours, alone) for _, ours in pairs]),
            required=Required(low=0.95),
        ),
    ]


def _times_alone(cluster: Cluster, batch: int, steps: int) -> list[StepTime]:
    """Time each host by itself, both at once, with two batches."""
    measured = {
        size: cluster.all_at_once(replace(PLAN, node_batch=size), steps)
        for size in (batch, batch // 2)
    }
    return [
        fit_step_time(
            [
                (size, Measurement(samples_s=tuple(by[host])).median_s)
                for size, by in measured.items()
            ]
        )
        for host in range(len(cluster.bed.hosts))
    ]


if __name__ == "__main__":
    run_bench(main)
