"""Plan of a real search beside the fastest plans of a recorded grid, all of them on this machine.

The grid says which plans: its times may be another machine's. They are started a few at a time and
raced with the plan that ``ddlplan tune`` has found here. The fastest of many is a lucky one too, so
the first ones are started afresh and raced with it again, and these races are the figure.
"""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path

from _block import BenchError, Ddlplan, Result, begin, make_parser, run_bench
from _launches import Launches, say_plan
from _races import alone, make_runner, race_final

from launch.plan import Plan
from launch.use_cases import make_workload
from launch.workers.fork_server_pool import ForkServerPool
from planner.api import plans
from planner.quantities import format_range
from planner.report.plan_line import describe_plan
from planner.trials.comparison import compare_results
from planner.trials.contender import StartContender
from planner.trials.grid import Grid, read_grid
from probes.node import probe
from probes.timing import Interval

_FINAL_ROUNDS = 12


def main() -> int:
    """Search, race the grid's fastest plans with what was found, show."""
    arguments, out = begin(_parser())
    grid = read_grid(arguments.grid)
    fastest = _fastest(grid, arguments.plans)
    with Ddlplan.in_own_folder() as ddlplan, ForkServerPool() as servers:
        use_case = make_workload(arguments.use_case).use_case  # a file by its whole path
        launches = Launches(ddlplan, use_case, None)
        best = launches.tune(arguments.budget, "fp32").data["plan"]
        say_plan(out, best)
        found = plans.get(int(best["id"]), db=str(ddlplan.database)).stored.plan
        node = probe(quick=True)
        cores = node.cpu.usable_cores
        ratios: list[tuple[Interval, Plan]] = []
        with alone(out):
            runner = make_runner(use_case, None, node, servers)
            others = [plan for plan in fastest if plan != found]
            for first in range(0, len(others), arguments.at_once):
                group = others[first : first + arguments.at_once]
                seen = _race(runner.start, found, group, arguments.rounds, 1, cores)
                for ratio, plan in zip(seen, group, strict=True):
                    out.say(f"{format_range(ratio)} times the plan found: {describe_plan(plan)}")
                    ratios.append((ratio, plan))
            ratios.sort(key=lambda one: one[0].median, reverse=True)
            ahead = [plan for _, plan in ratios[: arguments.at_once]]
            final = _race(runner.start, found, ahead, _FINAL_ROUNDS, 2, cores)
        ratio, plan = max(zip(final, ahead, strict=True), key=lambda one: one[0].median)
        out.say(f"the best of the grid: {describe_plan(plan)}")
        figure = "samples/s of the plan found / of the best of the grid"
        return out.conclude([Result(figure, ratio.reciprocal(), low=0.98)])


def _fastest(grid: Grid, count: int) -> list[Plan]:
    """Give the grid's plans with the highest rates."""
    rates: dict[Plan, float] = {}
    for result in grid.results:
        rate = result.throughput_samples_per_s()
        if rate is not None:
            rates[result.plan] = rate.median
    return sorted(rates, key=lambda plan: rates[plan], reverse=True)[:count]


def _race(
    start: StartContender, found: Plan, others: Sequence[Plan], rounds: int, starts: int, cores: int
) -> list[Interval]:
    """Race plans with the one found; tell how many times as fast each of them is."""
    raced = [found, *others]
    base, *results = race_final(start, raced, rounds=rounds, cores=cores, starts=starts)
    ratios = [compare_results(base, result) for result in results]
    if None in ratios:
        raise BenchError("too few turns side by side: raise --rounds")
    return [ratio for ratio in ratios if ratio is not None]


def _parser() -> ArgumentParser:
    parser = make_parser(
        __doc__,
        plans=(24, "of the grid, the fastest ones"),
        at_once=(3, "of them beside the plan found, as memory allows"),
        rounds=(5, "of turns of each before the final"),
    )
    parser.add_argument("grid", type=Path, help="such as bench/grids/measured-mlp-2-cores.json")
    parser.add_argument("--use-case", required=True, help="what the grid was recorded with")
    parser.add_argument("--budget", default="2m", help="time to tune (2m)")
    return parser


if __name__ == "__main__":
    run_bench(main)
