"""Ways to average gradients between hosts, compared: ring, tree and server in every wire format.

Hosts of one core on one machine, see `tests/hosts/testbed`, train the network of `mnist_cnn`
(431,080 parameters, SGD at 0.01 without momentum) from the same weights on the same samples in the
same order. The table has what a step takes, and the loss and the accuracy after so many steps.
Every scheme trains once a round, with the seed of that round, and every other round goes backwards;
the ratio of its steps to those of a ring of exact numbers is one of the same round, and so is the
difference of their accuracies. With `--use-case mnist_cnn` 8 bits and the largest 1 % may cost half
a point of accuracy.

Before that, in this process: what it costs a rank to write and read 4 MiB of gradients in each
format. A format pays where the link would take longer for what it saves.
"""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np
from _block import CASES, BenchError, Output, Result, begin, make_parser, mean_interval, run_bench
from _hosts import Cluster
from _prepared_case import load_prepared
from _trainings import own_folder
from testbed.bed import Testbed

from launch.gradient_sync.algorithms import algorithm_names
from launch.gradient_sync.allreduce.buckets import BUCKET_BYTES
from launch.gradient_sync.wire_formats import load_wire_format, wire_format_names
from launch.gradient_sync.wire_formats._base import WireFormat
from launch.job import Job, NodeJob
from launch.plan import Plan
from launch.reports import GradientsSynced, JobFailed, Report, StepDone, Validated
from launch.workload import Workload
from probes import codec
from probes.timing import Interval, Measurement, paired_ratio

_CASE = f"{CASES}:PatternsInMemory"
_JUDGED_CASE, _JUDGED_WIRES = "mnist_cnn", ("int8", "top1")
_MOST_LOST = 0.5
"""Points of accuracy, against exact numbers."""
_HOSTS = 2
_STEPS, _WARMUP_STEPS = 150, 3
"""Of an epoch of the patterns; and those that are not timed."""

_LAST = 10
"""Steps over which the training loss is averaged."""

_CODEC_RUNS = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    """A way to average."""

    all_reduce: str
    wire: str

    def __str__(self) -> str:
        return f"{self.all_reduce} {self.wire}"


EXACT = Scheme(all_reduce="ring", wire="fp32")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """What a training with one scheme gave."""

    step_s: float
    """Mean of the steps but the first ones."""

    sent_bytes: float
    """By the first host, in a step."""

    loss: float
    validation_loss: float
    accuracy: float

    @classmethod
    def of(cls, reports: Sequence[Report]) -> Trained:
        """Read it from the reports of all hosts."""
        steps = [each for each in reports if isinstance(each, StepDone)]
        synced = [each for each in reports if isinstance(each, GradientsSynced)]
        last = max(each.epoch for each in reports if isinstance(each, Validated))
        judged = [each for each in reports if isinstance(each, Validated) and each.epoch == last]
        samples = sum(each.samples for each in judged)
        return cls(
            step_s=fmean(step.time_s for step in steps[_WARMUP_STEPS:]),
            sent_bytes=sum(s.sent_bytes for s in synced) / max(1, sum(s.steps for s in synced)),
            loss=fmean(step.loss for step in steps[-_LAST:]),
            validation_loss=sum(each.loss_sum for each in judged) / sum(j.weight for j in judged),
            accuracy=sum(each.metric_sums["accuracy"] for each in judged) / samples,
        )


def main() -> int:
    """Measure and show."""
    parser = make_parser(
        __doc__,
        epochs=(1, "of a training"),
        batch=(64, "of one host"),
        rounds=(2, "of trainings"),
        limit=(840, "seconds for the trainings at one rate"),
    )
    parser.add_argument("--rates", default="1gbit,100mbit", help="of the links (1gbit,100mbit)")
    parser.add_argument("--use-case", default=_CASE, help="with metric `accuracy` (patterns)")
    parser.add_argument("--wires", default=",".join(wire_format_names()), help="formats (all)")
    parser.add_argument("--sums", default=",".join(algorithm_names()), help="algorithms (all)")
    parser.add_argument("--only-formats", action="store_true", help="cost of the formats alone")
    arguments, out = begin(parser)
    results = list(_format_costs())
    out.show(results)
    if arguments.only_formats:
        return out.conclude(results)
    schemes = [
        Scheme(all_reduce=all_reduce, wire=wire)
        for wire in arguments.wires.split(",")
        for all_reduce in arguments.sums.split(",")
    ]
    if EXACT not in schemes:
        schemes.insert(0, EXACT)
    if arguments.use_case != _CASE:
        load_prepared(arguments.use_case)
    with Testbed(_HOSTS, cores=["0", "1"]) as bed:
        for rate in arguments.rates.split(","):
            bed.set_rate(rate)
            found = _train_all(Cluster(bed), schemes, arguments)
            _show(out, rate, found)
            for scheme, trained in found.items():
                out.document(_document(rate, scheme, trained))
            results += _accuracies(rate, found, arguments.use_case)
    return out.conclude(results)


def _format_costs() -> Iterator[Result]:
    """Measure what each format costs for a byte of gradients: written once, and read twice."""
    random = np.random.default_rng(0)
    size = BUCKET_BYTES // 4
    gradients = (random.standard_normal(size) * np.exp(random.standard_normal(size))).astype("f4")
    exact_s = _format_s(load_wire_format("fp32"), gradients)
    for name in wire_format_names():
        wire_format = load_wire_format(name)
        if not wire_format.is_exact:
            beyond = [time_s - median(exact_s) for time_s in _format_s(wire_format, gradients)]
            per_byte = Measurement(samples_s=tuple(1e9 * each / BUCKET_BYTES for each in beyond))
            yield Result(f"{name}: processor", per_byte.interval_s(), "ns/byte")
            said = f"{name}: faster than fp32 on links of two hosts up to"
            yield Result(said, 8 / per_byte.interval_s().median, "Gb/s")


def _format_s(wire_format: WireFormat, gradients: Any) -> list[float]:
    errors, values, times_s = np.zeros_like(gradients), gradients.copy(), []
    for _ in range(_CODEC_RUNS):
        values[:] = gradients
        began = time.perf_counter()
        message = wire_format.encode(values, errors)
        wire_format.add(message, values)
        wire_format.replace(message, values)
        times_s.append(time.perf_counter() - began)
    return times_s[_WARMUP_STEPS:]


def _train_all(
    cluster: Cluster, schemes: Sequence[Scheme], arguments: Namespace
) -> dict[Scheme, list[Trained]]:
    """Train with every scheme, once a round."""
    found: dict[Scheme, list[Trained]] = {scheme: [] for scheme in schemes}
    rounds = [schemes[:: 1 if number % 2 == 0 else -1] for number in range(arguments.rounds)]
    with own_folder() as name:
        folder = Path(name)
        samples = _STEPS * arguments.batch * _HOSTS
        (folder / "samples").write_text(str(samples))
        files = []
        for number, order in enumerate(rounds):
            for scheme in order:
                own = folder / f"{number} {scheme}".replace(" ", "-")
                own.mkdir()
                files.append(own / "job.json")
                job = _job(cluster, scheme, folder, own, arguments, seed=number)
                files[-1].write_bytes(codec.encode(job))
        cluster.run_ranks("_schemes_rank", files, limit_s=arguments.limit)
        for file, scheme in zip(files, [one for order in rounds for one in order], strict=True):
            found[scheme].append(Trained.of(list(_read_reports(file))))
    return found


def _job(
    cluster: Cluster, scheme: Scheme, data: Path, own: Path, arguments: Namespace, *, seed: int
) -> Job:
    plan = Plan(strategy="sequential", node_batch=arguments.batch)
    where = str(data) if arguments.use_case == _CASE else None
    return Job(
        workload=Workload(use_case=arguments.use_case, data=where, seed=seed),
        epochs=arguments.epochs,
        nodes=tuple(NodeJob(host=host.name, plan=plan) for host in cluster.bed.hosts),
        run_directory=str(own),
        keep_shares=True,
        wire=scheme.wire,
        all_reduce=scheme.all_reduce,
    )


def _read_reports(job_file: Path) -> Iterator[Report]:
    """Read what the ranks said; steps and bytes by the first one alone."""
    for file in sorted(job_file.parent.glob("reports-*")):
        for report in map(Report.decode, file.read_bytes().splitlines()):
            if isinstance(report, JobFailed):
                raise BenchError(f"{report.node}: {report.message}\n{report.log_tail}")
            if file.name == "reports-0" or isinstance(report, Validated):
                yield report


def _ratio(trained: Sequence[Trained], exact: Sequence[Trained]) -> Interval | None:
    pairs = [(one.step_s, other.step_s) for one, other in zip(trained, exact, strict=True)]
    return paired_ratio(pairs) if len(pairs) > 1 else None


def _accuracies(rate: str, found: dict[Scheme, list[Trained]], use_case: str) -> Iterator[Result]:
    """Give by how many points each scheme ends above exact numbers, or below them."""
    for scheme, trained in found.items():
        if scheme == EXACT:
            continue
        pairs = zip(trained, found[EXACT], strict=True)
        points = [100 * (one.accuracy - exact.accuracy) for one, exact in pairs]
        is_judged = use_case.partition(",")[0] == _JUDGED_CASE and scheme.wire in _JUDGED_WIRES
        value: Interval | float = mean_interval(points) if len(points) > 1 else points[0]
        low = -_MOST_LOST if is_judged else None
        yield Result(f"{rate}, {scheme}: accuracy - that of {EXACT}", value, "points", low)


def _show(out: Output, rate: str, found: dict[Scheme, list[Trained]]) -> None:
    rows = []
    for scheme, trained in found.items():
        ratio = _ratio(trained, found[EXACT])
        exact_s = fmean(one.step_s for one in found[EXACT])
        step_s = fmean(one.step_s for one in trained)
        said = f"{step_s / exact_s:.2f}"
        if ratio is not None and trained is not found[EXACT]:
            said = f"{ratio.median:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"
        rows.append(
            [
                scheme.all_reduce,
                scheme.wire,
                f"{1e3 * step_s:.3g}",
                said,
                f"{trained[0].sent_bytes / 1e6:.3g}",
                f"{trained[0].loss:.4f}",
                f"{trained[0].validation_loss:.4f}",
                f"{100 * trained[0].accuracy:.1f} %",
            ]
        )
    out.say()
    out.say(rate)
    titles = ["SUM", "WIRE", "STEP, ms", "/ RING FP32", "SENT, MB", "LOSS", "TEST LOSS", "RIGHT"]
    out.table(titles, rows)
    out.say()


def _document(rate: str, scheme: Scheme, trained: Sequence[Trained]) -> dict[str, Any]:
    return {
        "rate": rate,
        "all_reduce": scheme.all_reduce,
        "wire": scheme.wire,
        "steps_s": [one.step_s for one in trained],
        "sent_bytes": trained[0].sent_bytes,
        "loss": trained[0].loss,
        "validation_loss": trained[0].validation_loss,
        "accuracy": trained[0].accuracy,
    }


if __name__ == "__main__":
    run_bench(main)
