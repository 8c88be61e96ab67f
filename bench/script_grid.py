"""Compare the plan of an unmodified script with the best of its whole grid, and with its launch.

The script is a plain loop that trains AlexNet on pictures in memory. `tune` has three minutes. Then
every point of threads x batch x workers x allocator is run, each a start of its own with the same
steps, in several rounds and another order each time; the plan is one of them. At last the plan is
launched, and its own clock is held against the stored rate. Run it on a quiet machine: the grid
takes half an hour on 2 cores, the short form some ten minutes.

    python bench/script_grid.py --db grid.db
    python bench/script_grid.py --db grid.db --batches 32,128 --workers 0 --rounds 2
"""

from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
import sys
import time
from argparse import ArgumentParser, Namespace
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from launch.plan import Plan, Setting
from launch.process_environment.openmp import WAIT_POLICY
from launch.scripts.environment import make_start
from launch.scripts.program import Program
from launch.system.machine_lock import Occupant, timing_alone
from planner.quantities import format_duration
from probes.hardware import Hardware
from probes.node import probe

SCRIPT = Path(__file__).with_name("step_scripts") / "alexnet.py"
WORDS = (sys.executable, str(SCRIPT), "--batch-size", "{batch}", "--workers", "{workers}")
_SAMPLES, _LAUNCH_PARTS = 384, 4
"""A launch trains so many times the samples of a point, as its rate is measured once."""

_LIMIT_S = 1800.0


@dataclass(frozen=True, slots=True)
class Point:
    """One point of the grid."""

    threads: int
    batch: int
    workers: int
    allocator: str
    waiting: str = "default"

    @classmethod
    def of(cls, plan: Plan) -> Point:
        """Give the point of a plan that was found."""
        return cls(
            plan.threads_per_process,
            int(plan.options["batch"]),
            plan.loader_workers,
            plan.allocator,
            str(plan.options.get(WAIT_POLICY, "default")),
        )

    def rate(self, node: Hardware) -> float:
        """Run the script so; give the samples per second that it has timed by itself."""
        options: dict[str, Setting] = {"batch": self.batch}
        if self.waiting != "default":
            options[WAIT_POLICY] = self.waiting
        plan = Plan(
            strategy="script",
            node_batch=self.batch,
            threads_per_process=self.threads,
            loader_workers=self.workers,
            allocator=self.allocator,
            options=options,
        )
        program = Program(arguments=(*WORDS, "--samples", str(_SAMPLES)))
        start = make_start(program, plan, node)
        cores = start.cores or sorted(os.sched_getaffinity(0))
        command = ["taskset", "--cpu-list", ",".join(map(str, cores)), *start.command]
        return _own_rate(command, {**os.environ, **start.environment})


def main() -> None:
    """Tune, run the grid, launch."""
    arguments = _parse()
    node = probe(quick=True)
    batches = [int(batch) for batch in arguments.batches.split(",")]
    workers = [int(count) for count in arguments.workers.split(",")]
    words = [*WORDS, "--samples", str(_LAUNCH_PARTS * _SAMPLES)]
    began = time.monotonic()
    stored, found = _tune(arguments, words)
    print(f"tune took {format_duration(time.monotonic() - began)}: {found}, stored {stored:.1f}/s")
    threads = sorted({node.cpu.usable_cores, max(1, node.cpu.usable_cores // 2), 1})
    axes = itertools.product(threads, batches, workers, ("default", "retain"))
    points = list(dict.fromkeys([found, *(Point(*values) for values in axes)]))
    rates: dict[Point, list[float]] = {point: [] for point in points}
    order = random.Random(0)
    # Not before: `tune` and `launch` take a place of their own.
    alone = timing_alone(Occupant.of_this_process(), waits=True, on_wait=print, on_trouble=print)
    with alone:
        for number in range(arguments.rounds):
            order.shuffle(points)
            for point in points:
                rates[point].append(point.rate(node))
                print(f"round {number + 1}: {point} {rates[point][-1]:.1f}/s", flush=True)
    best = max(rates, key=lambda point: median(rates[point]))
    behind = 100 * (1 - median(rates[found]) / median(rates[best]))
    print(f"best of {len(rates)}: {best}, {median(rates[best]):.1f}/s; plan {behind:.1f} % behind")
    launched = _own_rate(
        [sys.executable, "-P", "-m", "planner", "launch", "--db", arguments.db, "--", *words],
        dict(os.environ),
    )
    print(f"launched {launched:.1f}/s, {100 * (launched / stored - 1):+.1f} % of what is stored")


def _tune(arguments: Namespace, words: list[str]) -> tuple[float, Point]:
    """Tune by the command; give the stored rate and the point of the plan."""
    choices = (f"batch={arguments.batches}", f"workers={arguments.workers}")
    limits = ["--budget", "3m", *(w for one in choices for w in ("--choices", one))]
    command = ["tune", *limits, "--db", arguments.db, "--fresh", "--json", "--", *words]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "planner", *command],
        stdout=subprocess.PIPE,
        timeout=_LIMIT_S,
        check=True,
    )
    document = json.loads(done.stdout)["data"]["plan"]
    plan = Plan(
        strategy="script",
        node_batch=document["node_batch"],
        threads_per_process=document["threads_per_process"],
        loader_workers=document["loader_workers"],
        allocator=document["allocator"],
        options=document["options"],
    )
    return document["throughput_samples_per_s"]["median"], Point.of(plan)


def _own_rate(command: list[str], environment: dict[str, str]) -> float:
    """Run the script to its end; give the rate in its last line."""
    done = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, timeout=_LIMIT_S, check=True
    )
    return float(done.stdout.decode().split()[-1])


def _parse() -> Namespace:
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--db", required=True, help="database for the search")
    parser.add_argument("--batches", default="32,64,128", help="the first one is the script's own")
    parser.add_argument("--workers", default="0,1,2", help="likewise")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each point")
    return parser.parse_args()


if __name__ == "__main__":
    main()
