"""Recorded grids: written, read, and searched in place of a machine."""

from __future__ import annotations

from dataclasses import replace

import pytest
from imagined_machines import CASE, Machine, node_of

from launch.plan import Plan
from launch.workload import Workload
from planner.api.grids import replay_grid
from planner.errors import GridFileError
from planner.search.space import PlanSpace
from planner.trials.contender import TrialFailedError
from planner.trials.grid import Grid, read_grid, write_grid
from planner.trials.replay import Replay
from planner.trials.result import Outcome
from planner.tuning.tune_request import TuneRequest

MACHINE = Machine(parts=2, fixed=0.1, retain=0.88)
PLAIN = Plan(strategy="threads", node_batch=32, threads_per_process=2)


def make_grid() -> Grid:
    space = PlanSpace(("threads", "processes"), replace(CASE, can_compile=False), node_of(2))
    near = [other for guess in space.guesses for other in space.neighbours(guess)]
    drawn = [*space.guesses, *near, space.find_plan(PLAIN, {})]
    return Grid(
        about="imagined",
        is_synthetic=True,
        use_case="imagined",
        case=space.case,
        node=space.node,
        software={"torch": "2.15.0"},
        results=tuple(MACHINE.result(one.plan, one.parameters) for one in drawn),
    )


def test_grid_is_read_as_it_was_written(tmp_path):
    grid = make_grid()
    write_grid(grid, tmp_path / "grid.json")
    read = read_grid(tmp_path / "grid.json")
    assert [result.plan for result in read.results] == [result.plan for result in grid.results]
    known, found = grid.results[0].measurement, read.results[0].measurement
    assert found.samples_s == pytest.approx(known.samples_s, rel=1e-4)
    assert read.case == grid.case


@pytest.mark.parametrize("text", ["", "{}", '{"schema_version": 9}', "[1]"])
def test_file_that_is_no_grid_is_refused_by_its_name(tmp_path, text):
    path = tmp_path / "grid.json"
    path.write_text(text)
    with pytest.raises(GridFileError, match=r"grid\.json"):
        read_grid(path)


def test_replayed_plan_makes_its_recorded_steps_and_winds_the_clock():
    grid = make_grid()
    result = grid.results[0]
    replay = Replay(grid)
    contender = replay.start(result.plan)
    started_s = replay.clock()
    steps = contender.make_steps(3, time_limit_s=100)
    times_s = {*result.measurement.warmup_s, *result.measurement.samples_s}
    assert {step.time_s for step in steps} <= times_s
    assert replay.clock() - started_s == pytest.approx(sum(step.time_s for step in steps))
    with pytest.raises(TrialFailedError) as failed:
        contender.make_steps(1000, time_limit_s=0.001)
    assert failed.value.outcome is Outcome.TIME_LIMIT


def test_plan_that_was_not_recorded_fails():
    with pytest.raises(TrialFailedError, match="not among the recorded plans"):
        Replay(make_grid()).start(replace(PLAIN, node_batch=31))


def test_search_on_a_grid_finds_its_best_plan():
    grid = make_grid()
    request = TuneRequest(workload=Workload(use_case="imagined"), budget_s=300)
    found = replay_grid(grid, request).plan.plan
    best_s = min(MACHINE.sample_s(result.plan) for result in grid.results)
    assert MACHINE.sample_s(found) < 1.02 * best_s
