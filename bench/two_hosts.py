"""Training on two hosts, as a share of what their cores and their link allow.

Two hosts of one core each, on one machine: see `tests/hosts/testbed`. With AlexNet, whose
gradients are 228 MB, a step cannot be shorter than

* the computing of one host, with both at it, plus the time for which the averaging keeps
  its only core busy, the kernel's part with it, measured by adding up the same bytes alone;
* nor than the time in which the link can carry the bytes, at the rate that iperf3 gets both ways.

The larger of the two is the bound. Ours is held against it, and against torch's DDP over gloo on
the same hosts and link, with the same batch, as a user would write it and with our memory format.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from statistics import fmean, median

from _block import Result, begin, make_parser, run_bench
from _hosts import Cluster
from _speeds import GRADIENT_BYTES, each_alone, together
from _turns import take_turns
from testbed.bed import Testbed

from probes.timing import Measurement, paired_ratio

_TURN_S = 8.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """What the link can do."""

    rate: str
    iperf3_bytes_per_s: float
    sum_s: tuple[float, ...]
    rank_s: float
    """Processor time of a rank for a sum."""
    processor_s: float
    """The same, and what the kernel does with packets beside it."""
    sent_bytes: int

    @property
    def wire_s(self) -> float:
        """Least time of a step's bytes on the link."""
        return self.sent_bytes / self.iperf3_bytes_per_s


def main() -> int:
    """Measure and show."""
    parser = make_parser(__doc__, rounds=(6, "of turns"))
    parser.add_argument("--rates", default="1gbit,10gbit", help="of the links (1gbit,10gbit)")
    parser.add_argument("--batches", default="16,64", help="of one host (16,64)")
    arguments, out = begin(parser)
    results: list[Result] = []
    with Testbed(2, cores=["0", "1"]) as bed:
        cluster = Cluster(bed)
        for rate in arguments.rates.split(","):
            bed.set_rate(rate)
            link = _measure_link(cluster, rate)
            found = _link_results(link)
            out.show(found)
            results += found
            for batch in map(int, arguments.batches.split(",")):
                found = _judge(cluster, link, batch, arguments.rounds)
                out.show(found)
                results += found
    return out.conclude(results)


def _measure_link(cluster: Cluster, rate: str) -> Link:
    before = cluster.iperf3_bytes_per_s()
    summed = cluster.sum_all(GRADIENT_BYTES, 10)
    after = cluster.iperf3_bytes_per_s()
    return Link(
        rate=rate,
        iperf3_bytes_per_s=(before + after) / 2,
        sum_s=tuple(summed["times_s"]),
        rank_s=median(summed["processor_s"]),
        processor_s=median(summed["busy_s"]),
        sent_bytes=summed["bytes"],
    )


def _link_results(link: Link) -> list[Result]:
    rates = [1e-9 * 8 * link.sent_bytes / time_s for time_s in link.sum_s]
    iperf3 = 1e-9 * 8 * link.iperf3_bytes_per_s
    ours = Measurement(samples_s=tuple(rates))
    ratio = paired_ratio([(rate, iperf3) for rate in rates])
    return [
        Result(f"{link.rate}: iperf3, each way", iperf3, "Gb/s"),
        Result(f"{link.rate}: ours, each way", ours.interval_s(), "Gb/s"),
        Result(f"{link.rate}: ours / iperf3", ratio, low=0.88),
        Result(f"{link.rate}: processor, of a sum", link.processor_s, "s"),
        Result(f"{link.rate}: the rank's own part of that", link.rank_s, "s"),
    ]


def _judge(cluster: Cluster, link: Link, batch: int, rounds: int) -> list[Result]:
    batches = dict.fromkeys(cluster.bed.hosts[:2], batch)
    with ExitStack() as stack:
        turns = [
            stack.enter_context(turn)
            for turn in (
                cluster.turn([together(batches)]),
                cluster.turn(each_alone(batches)),
                cluster.ddp_turn(batch, channels_last=False),
                cluster.ddp_turn(batch, channels_last=True),
            )
        ]
        found = take_turns(turns, rounds=rounds, seconds=_TURN_S)
    steps_s = [ours[0] for ours, *_ in found]
    computing_s = [fmean(alone) for _, alone, *_ in found]
    compute_s = fmean(computing_s)
    is_computing = compute_s + link.processor_s >= link.wire_s
    bounds_s = [max(time_s + link.processor_s, link.wire_s) for time_s in computing_s]
    name = f"{link.rate}, batch {batch}"
    return [
        Result(f"{name}: computing alone", compute_s, "s"),
        Result(f"{name}: wire", link.wire_s, "s"),
        Result(f"{name}: step", fmean(steps_s), "s"),
        Result(
            f"{name}: step / bound ({'computing' if is_computing else 'link'})",
            paired_ratio(list(zip(steps_s, bounds_s, strict=True))),
            high=1.08 if is_computing else 1.15,
        ),
        Result(
            f"{name}: time of DDP / ours",
            paired_ratio([(ddp[0], ours[0]) for ours, _, ddp, _ in found]),
            low=1.25,
        ),
        Result(
            f"{name}: the same, DDP with channels_last",
            paired_ratio([(ddp[0], ours[0]) for ours, _, _, ddp in found]),
        ),
    ]


if __name__ == "__main__":
    run_bench(main)
