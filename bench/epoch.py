"""How much faster does the plan that was found train, from photo files to stored weights?

Tunes (or takes a database that holds a plan), then alternates whole `ddlplan launch` commands of
the baseline and of the best plan. What counts is the time from the start of a command to its exit:
reading the files, training one epoch, validating, writing the weights, and starting all of it.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _block import (
    Answer,
    BenchError,
    Ddlplan,
    Output,
    Required,
    Result,
    alternate,
    make_parser,
    positive,
    root_option,
    run_bench,
)

from probes.timing import Interval, paired_ratio

_DEFAULTS = {
    "processes": 1,
    "threads_per_process": 1,
    "replicas": 1,
    "micro_batches": 1,
    "devices": ["cpu"],
    "precision": "fp32",
    "memory_format": "contiguous",
    "loader_workers": 0,
    "allocator": "default",
    "options": {},
}
"""Every setting of a baseline plan; spelled out, so that a changed default is no other baseline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """One whole launch."""

    wall_s: float
    train_s: float
    """Time of the training steps alone."""
    samples: int
    throughput_samples_per_s: float
    expected_samples_per_s: float
    """What the plan had recorded when it was found."""


class EpochBench:
    """Launches plans of one use case.

    Args:
        ddlplan: The command, with the database that holds the plans.
        use_case: What to train.
        data: Where its data are, if not where it finds them by itself.
    """

    def __init__(self, ddlplan: Ddlplan, use_case: str, data: Path | None) -> None:
        self._ddlplan = ddlplan
        self._case = ["--use-case", use_case]
        self._data = [] if data is None else ["--data", str(data.resolve())]

    def tune(self, budget: str) -> Answer:
        """Search as a user would."""
        return self._ddlplan.run(
            "tune", *self._case, *self._data, "--budget", budget, show_progress=True
        )

    def best_plan(self) -> dict[str, Any]:
        """Give the plan that `launch` would use."""
        plan: dict[str, Any] = self._ddlplan.run("plans", "best", *self._case).data
        return plan

    def import_baseline(self, best: Mapping[str, Any]) -> int:
        """Store the baseline that a plan was compared with as a plan of its own.

        Raises:
            BenchError: The plan has none, or no trial of it is on record.
        """
        baseline = best["baseline"]
        if baseline is None:
            raise BenchError("the plan has no baseline: tune with a larger --budget")
        document = {
            **best,
            **_DEFAULTS,
            "strategy": baseline["strategy"],
            "node_batch": baseline["node_batch"],
            "throughput_samples_per_s": self._baseline_throughput(baseline),
            "speedup": None,
            "baseline": None,
            "peak_memory_bytes": None,
        }
        file = self._ddlplan.folder / "baseline.json"
        file.write_text(json.dumps(document))
        return int(self._ddlplan.run("plans", "import", file).data["id"])

    def _baseline_throughput(self, baseline: Mapping[str, Any]) -> Mapping[str, Any]:
        for trial in self._ddlplan.run("trials", *self._case).data:
            found = trial["throughput_samples_per_s"]
            if trial["role"] != "baseline" or found is None:
                continue
            if math.isclose(found["median"], baseline["throughput_samples_per_s"]):
                throughput: Mapping[str, Any] = found
                return throughput
        raise BenchError("the baseline's trial is not on record: tune again, with --fresh")

    def launch(self, plan_id: int) -> Epoch:
        """Train one epoch with a plan.

        Raises:
            BenchError: The command failed, or wrote no weights.
        """
        arguments = (*self._case, *self._data, "--epochs", 1, "--plan", plan_id, *root_option())
        answer = self._ddlplan.run("launch", *arguments)
        weights = answer.data["weights"]
        if weights is None or not Path(weights).stat().st_size:
            raise BenchError(f"plan {plan_id} left no weights")
        shutil.rmtree(answer.data["run_directory"])
        epoch = answer.data["epochs"][0]
        return Epoch(
            wall_s=answer.wall_s,
            train_s=epoch["train_time_s"],
            samples=epoch["samples"],
            throughput_samples_per_s=epoch["throughput_samples_per_s"],
            expected_samples_per_s=answer.data["expected_throughput_samples_per_s"],
        )


def main() -> int:
    """Measure and show."""
    arguments = _parse()
    out = Output("epoch", as_json=arguments.json)
    out.introduce()
    with Ddlplan.in_own_folder() as ddlplan:
        bench = EpochBench(ddlplan, arguments.use_case, arguments.data)
        shares: list[Result] = []
        if arguments.plan_db is None:
            tuned = bench.tune(arguments.budget)
            best, shares = tuned.data["plan"], [_share(tuned)]
        else:
            _copy_database(arguments.plan_db, ddlplan.database)
            best = bench.best_plan()
        _say_plan(out, best)
        baseline_id = bench.import_baseline(best)
        if arguments.plan_db is not None:
            bench.launch(best["id"])  # reads the files once, which tuning has done otherwise
        pairs = _measure(out, bench, baseline_id, best["id"], arguments.blocks)
    return out.conclude([*_results(pairs, best), *shares])


def _measure(
    out: Output, bench: EpochBench, baseline_id: int, best_id: int, blocks: int
) -> list[tuple[Epoch, Epoch]]:
    def launch(name: str, plan_id: int) -> Epoch:
        epoch = bench.launch(plan_id)
        out.say(
            f"{name:9} {epoch.wall_s:7.1f} s in all, {epoch.train_s:7.1f} s in training steps, "
            f"{epoch.throughput_samples_per_s:.1f} samples/s"
        )
        return epoch

    pairs = list(
        alternate(
            lambda: launch("baseline", baseline_id),
            lambda: launch("best plan", best_id),
            blocks=blocks,
        )
    )
    samples = {epoch.samples for pair in pairs for epoch in pair}
    if len(samples) != 1:
        raise BenchError(f"epochs of {sorted(samples)} samples: unequal work cannot be compared")
    out.say()
    return pairs


def _results(pairs: Sequence[tuple[Epoch, Epoch]], best: Mapping[str, Any]) -> list[Result]:
    launched = [(b.throughput_samples_per_s, b.expected_samples_per_s) for _, b in pairs]
    baselines = [(a.throughput_samples_per_s, a.expected_samples_per_s) for a, _ in pairs]
    results = [
        Result(
            figure="whole launch, time of baseline / best plan",
            value=paired_ratio([(a.wall_s, b.wall_s) for a, b in pairs]),
            required=Required(low=2.0),
        ),
        Result(
            figure="training steps, time of baseline / best plan",
            value=paired_ratio([(a.train_s, b.train_s) for a, b in pairs]),
        ),
    ]
    if best["speedup"] is not None:
        results.append(
            Result(figure="speedup that tune claimed", value=_interval(best["speedup"], best))
        )
    return [
        *results,
        Result(
            figure="best plan, launched / recorded throughput",
            value=paired_ratio(launched),
            required=Required(low=0.95, high=1.05),
        ),
        Result(figure="baseline, launched / recorded throughput", value=paired_ratio(baselines)),
    ]


def _share(tuned: Answer) -> Result:
    """Give how much of the whole tune command was spent in training steps.

    The rest starts Python, loads torch, probes a new machine, looks through the photos or draws
    them, and starts and ends the trials.
    """
    share = tuned.data["stepping_share"] * tuned.data["elapsed_s"] / tuned.wall_s
    return Result(
        figure="share of the tune command in training steps",
        value=100 * share,
        unit="%",
        required=Required(low=70),
    )


def _interval(values: Mapping[str, float], best: Mapping[str, Any]) -> Interval:
    return Interval(
        median=values["median"],
        low=values["ci_low"],
        high=values["ci_high"],
        count=best["throughput_samples_per_s"]["samples"],
    )


def _say_plan(out: Output, best: Mapping[str, Any]) -> None:
    changed = {key: best[key] for key, usual in _DEFAULTS.items() if best[key] != usual}
    settings = ", ".join(f"{key} {value}" for key, value in changed.items()) or "all defaults"
    rate = best["throughput_samples_per_s"]
    out.say(f"best plan: {best['strategy']}, batch {best['node_batch']}, {settings}")
    out.say(f"recorded:  {rate['median']:.1f} samples/s from {rate['samples']} steps")
    out.say()


def _copy_database(source: Path, target: Path) -> None:
    """Copy a database as SQLite does, so that the user's own is only read."""
    if not source.is_file():
        raise BenchError(f"--plan-db {source}: no such file")
    with (
        closing(sqlite3.connect(f"{source.resolve().as_uri()}?mode=ro", uri=True)) as original,
        closing(sqlite3.connect(target)) as copy,
    ):
        original.backup(copy)


def _parse() -> argparse.Namespace:
    parser = make_parser(__doc__)
    parser.add_argument("--use-case", default="simplebig", help="what to train (simplebig)")
    parser.add_argument("--data", type=Path, help="folder of photos, smaller ones for a first try")
    parser.add_argument("--budget", default="3m", help="time to tune (3m)")
    parser.add_argument("--plan-db", type=Path, help="take the plan from a copy of this database")
    parser.add_argument("--blocks", type=positive, default=1, help="of four launches each (1)")
    return parser.parse_args()


if __name__ == "__main__":
    run_bench(main)
