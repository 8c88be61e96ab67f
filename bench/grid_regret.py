"""Regret of searches that are replayed on recorded grids, as `tune --replay` does it.

The budget of a search is a part of the time that recording the grid took. *Regret* is by how much
the recorded time per sample of the chosen plan, compiling charged as the search does it, is above
that of the best one in the grid that the search is offered: a grid may hold larger batches.

Searches of a whole grid are much alike, whatever their seeds: 85 % of 20 may be a single piece of
luck. So each gets a part of the plans, drawn at random, with PyTorch's defaults among them.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median

import optuna
from _block import Result, begin, make_parser, run_bench

from launch.plan import Plan
from launch.strategies import strategy_names
from launch.workload import Workload
from planner.api.grids import replay_grid
from planner.search.plan_search import time_per_sample_s
from planner.search.space import PlanSpace
from planner.trials.grid import Grid, read_grid
from planner.tuning.subject import defaults_plan
from planner.tuning.tune_request import TuneRequest, limit_choices

_FOLDER = Path(__file__).parent / "grids"
_LIMIT = 0.02
_PART, _SHARE = 0.7, 0.05
"""Of a grid's plans, and of the time that recording them took."""


def main() -> int:
    """Replay and show."""
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    parser = make_parser(__doc__, seeds=(60, "searches of each grid"))
    parser.add_argument("files", type=Path, nargs="*", help="grids; all in bench/grids if none")
    arguments, out = begin(parser)
    files = arguments.files or sorted(
        file for file in _FOLDER.glob("*.json") if file.name != "step-times.json"
    )
    results = []
    for file in files:
        grid = read_grid(file)
        budget_s = _SHARE * sum(result.elapsed_s for result in grid.results)
        regrets = []
        for seed in range(arguments.seeds):
            request = TuneRequest(
                workload=Workload(use_case=grid.use_case, seed=seed), budget_s=budget_s
            )
            part = _draw_part(grid, seed)
            times_s = _times_s(part, request)
            best_s = min(times_s[plan] for plan in _offered(part, request) & times_s.keys())
            found = replay_grid(part, request, seed=seed).plan
            regrets.append(times_s[found.plan] / best_s - 1)
        near = 100 * fmean(regret <= _LIMIT for regret in regrets)
        out.say(
            f"{file.stem}: {len(times_s)} plans, {budget_s:.0f} s; regret median "
            f"{100 * median(regrets):.1f} %, mean {100 * fmean(regrets):.1f} %, "
            f"worst {100 * max(regrets):.1f} %"
        )
        figure = f"{file.stem}: seeds with a regret of at most {100 * _LIMIT:.0f} %"
        results.append(Result(figure, near, "%", low=95))
    return out.conclude(results)


def _draw_part(grid: Grid, seed: int) -> Grid:
    """Draw plans of a grid; those without which no search begins are always among them."""
    plain = defaults_plan(grid.case, grid.node)
    always = {plain, replace(plain, strategy="sequential", threads_per_process=1)}
    draw = random.Random(seed)
    drawn = [r for r in grid.results if draw.random() < _PART or r.plan in always]
    return replace(grid, results=tuple(drawn))


def _times_s(grid: Grid, request: TuneRequest) -> Mapping[Plan, float]:
    """Give the recorded time per sample of each plan, compile time included."""
    samples = request.epochs * grid.case.train_samples
    known = ((result.plan, time_per_sample_s(result, samples)) for result in grid.results)
    return {plan: time_s for plan, time_s in known if time_s is not None}


def _offered(grid: Grid, request: TuneRequest) -> set[Plan]:
    """Give the recorded plans that a search may try: their batches, and whether they compile.

    Those of which a trial takes too much of the budget are among them.
    """
    cores = grid.node.cpu.usable_cores
    case = limit_choices(grid.case, request, least_time_per_sample_s=0.0, cores=cores)
    drawn = [result.parameters for result in grid.results]
    space = PlanSpace(strategy_names(), case, grid.node, only=drawn)
    return {one.plan for one in space.only or ()}


if __name__ == "__main__":
    run_bench(main)
