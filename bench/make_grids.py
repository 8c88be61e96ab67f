"""Recorded grids of imagined machines, made by the stated time model: marked as synthetic.

For each machine the guesses of all strategies, the neighbours of the best plan that the model
knows, and random plans: a dozen steps each, one plan after the other, with noise.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from _worlds import MACHINES, Noise, World

from launch.plan import Setting
from launch.strategies import strategy_names
from planner.plans.software import current_software
from planner.search.space import DrawnPlan, PlanSpace
from planner.trials.grid import Grid, write_grid
from planner.trials.result import Outcome, Role, TrialResult
from probes.timing import Measurement

_SEED = 1
_PLANS, _STEPS = 250, 12
_NAMES = {1: "8-cores", 2: "64-cores", 3: "4-gpus"}


def main() -> None:
    """Write one file for each machine."""
    for number, name in _NAMES.items():
        world = World(MACHINES[number], _SEED, budget_s=600)
        path = Path(__file__).parent / "grids" / f"synthetic-{name}.json"
        write_grid(make_grid(world), path)
        print(f"{path}: {path.stat().st_size} bytes")


def make_grid(world: World) -> Grid:
    """Run plans on an imagined machine, one after the other."""
    space = PlanSpace(strategy_names(), world.case, world.node)
    noise = Noise(_SEED, dependence=0.6)
    now_s = 0.0
    results = []
    for drawn in _choose(world, space):
        plan = drawn.plan
        step_s = world.sample_s(plan) * plan.node_batch
        started_s = now_s
        now_s += world.start_s(plan)
        compile_s = world.compile_s if plan.compile else None
        now_s += compile_s or 0.0
        times = []
        for _ in range(_STEPS):
            times.append(step_s * noise.factor(now_s, step_s))
            now_s += times[-1]
        results.append(
            TrialResult(
                plan=plan,
                role=Role.SEARCH,
                outcome=Outcome.OK,
                measurement=Measurement(warmup_s=tuple(times[:1]), samples_s=tuple(times[1:])),
                peak_memory_bytes=world.peak_bytes(plan) if "cpu" in plan.devices else None,
                compile_s=compile_s,
                elapsed_s=now_s - started_s,
                parameters=drawn.parameters,
            )
        )
    return Grid(
        about=f"synthetic: {world.machine.name}, times of the model in bench/_worlds.py, "
        "noise of 3 % with an autocorrelation of 0.6, drift of 5 %, rare outliers",
        is_synthetic=True,
        use_case="imagined",
        case=world.case,
        node=world.node,
        software=current_software(),
        results=tuple(results),
    )


def _choose(world: World, space: PlanSpace) -> list[DrawnPlan]:
    """Choose guesses, what lies on the way to the best plan, and random plans."""
    generator = np.random.default_rng(_SEED)
    chosen = {guess.plan: guess for guess in space.guesses}
    for drawn in (
        space.find({"strategy": "sequential", **_PLAIN}),
        space.find({"strategy": "threads", "threads.layout": f"1x{world.machine.cores}", **_PLAIN}),
    ):
        if drawn is not None:
            chosen[drawn.plan] = drawn
    for guess in space.guesses:
        here = guess
        while len(chosen) < _PLANS * 0.7:
            nearby = space.neighbours(here)
            generator.shuffle(nearby)
            chosen |= {other.plan: other for other in nearby[:8]}
            best = min(nearby, key=lambda other: world.sample_s(other.plan))
            if world.sample_s(best.plan) >= world.sample_s(here.plan):
                break
            chosen[best.plan] = here = best
    while len(chosen) < _PLANS:
        drawn = space.draw_randomly(generator)
        if drawn is not None:
            chosen[drawn.plan] = drawn
    every = list(chosen.values())
    generator.shuffle(every)
    return every


_PLAIN: dict[str, Setting] = {
    "micro_batches": 1,
    "memory_format": "contiguous",
    "input": "files",
    "loader_workers": 0,
    "allocator": "default",
    "fused_optimizer": False,
    "compile": False,
    "node_batch": 32,
}
"""PyTorch's defaults."""


if __name__ == "__main__":
    main()
