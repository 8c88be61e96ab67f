"""How much faster are hosts of unequal speed with shares that let all finish together?

Two hosts of one core each, on one machine: see `tests/hosts/testbed`. One of them may use its core
only half, or a quarter, of the time. AlexNet is trained on both, once with equal shares of the
batch, once with the shares that follow from what each host needs alone. Ideal is a gain of 1.5 at
2:1 and of 2.5 at 4:1. The second figure holds the job against the sum of what both do alone.
"""

from __future__ import annotations

from dataclasses import replace

from _block import Output, Required, Result, alternate, make_parser, positive, run_bench
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

from planner.prediction import predict
from probes.timing import paired_ratio

_REQUIRED = {2: 1.45, 4: 2.35}


def main() -> int:
    """Measure and show."""
    parser = make_parser(__doc__)
    parser.add_argument("--ratios", default="2,4", help="of the speeds (2,4)")
    parser.add_argument("--rate", default=None, help="of the links, such as 1gbit (no limit)")
    parser.add_argument("--batch", type=positive, default=128, help="of both hosts together (128)")
    parser.add_argument("--blocks", type=positive, default=2, help="of four runs each (2)")
    parser.add_argument("--steps", type=positive, default=6, help="timed in each run (6)")
    arguments = parser.parse_args()
    out = Output("shares", as_json=arguments.json)
    out.introduce()
    results: list[Result] = []
    with Testbed(2, cores=["0", "1"], rate=arguments.rate) as bed:
        for ratio in map(int, arguments.ratios.split(",")):
            bed.set_quota(bed.hosts[1], 1 / ratio)
            found = _compare(Cluster(bed), ratio, arguments.batch, arguments)
            out.show(found)
            results += found
    return out.conclude(results)


def _compare(cluster: Cluster, ratio: int, batch: int, arguments: object) -> list[Result]:
    steps, blocks = int(arguments.steps), int(arguments.blocks)  # type: ignore[attr-defined]
    hosts = cluster.bed.hosts
    lines = measure_lines(cluster, hosts, [batch // 2, batch // 2], steps)
    nodes = [
        cluster_node(host, line, batch // 2, cores)
        for host, line, cores in zip(hosts, lines, (1.0, 1 / ratio), strict=True)
    ]
    exchange = measure_exchange(cluster, hosts)
    shares = predict(nodes, exchange, GRADIENT_BYTES, batch).batches
    equal = (batch - batch // 2, batch // 2)
    alone_s = alone_at_once(cluster, hosts, shares, steps)

    def train(batches: tuple[int, ...]) -> float:
        plans = [replace(PLAN, node_batch=share) for share in batches]
        return median_s(cluster.step_times_s(plans, steps))

    pairs = list(alternate(lambda: train(equal), lambda: train(shares), blocks=blocks))
    sum_alone = sum(share / time_s for share, time_s in zip(shares, alone_s, strict=True))
    ours = [batch / time_s for _, time_s in pairs]
    name = f"{ratio}:1"
    limit = Required(low=_REQUIRED[ratio]) if ratio in _REQUIRED else None
    return [
        *(
            Result(figure=f"{name}: share of host {number}", value=float(share), unit="samples")
            for number, share in enumerate(shares, start=1)
        ),
        Result(figure=f"{name}: equal shares / ours", value=paired_ratio(pairs), required=limit),
        Result(
            figure=f"{name}: ours / sum of both alone",
            value=paired_ratio([(one, sum_alone) for one in ours]),
            required=Required(low=0.95),
        ),
    ]


if __name__ == "__main__":
    run_bench(main)
