"""Recorded grids: written, read, and searched in place of a machine."""

from __future__ import annotations

import json
from dataclasses import replace
from statistics import median

import pytest
from imagined_machines import CASE, Machine, node_of

from launch.plan import Plan
from launch.workload import Workload
from planner.api.grids import replay_grid
from planner.errors import GridFileError
from planner.search.space import PlanSpace
from planner.trials.contender import TrialFailedError
from planner.trials.grid import Grid, check_target, read_grid, write_grid
from planner.trials.replay import Replay
from planner.trials.result import Outcome, Role, TrialResult
from planner.tuning.tune_request import TuneRequest
from probes.timing import Measurement
from tests.launch.small_files import files_of_at_most

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


def test_grid_that_cannot_be_written_leaves_what_was_there(tmp_path):
    """The story: on a full disk, a part of a grid took the place of the one before."""
    path = tmp_path / "grid.json"
    path.write_text("before")
    with files_of_at_most(9), pytest.raises(GridFileError, match=r"grid\.json: file too large"):
        write_grid(make_grid(), path)
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_is_no_grid_is_not_replaced(tmp_path):
    """The story: `trials export train.py` wrote the trials into the script."""
    path = tmp_path / "grid.json"
    check_target(path)
    path.touch()  # as mktemp makes it
    check_target(path)
    write_grid(make_grid(), path)
    check_target(path)
    for text in ("import torch\n", '{"schema_version": 1, "command": "plans export"}'):
        path.write_text(text)
        with pytest.raises(GridFileError, match=r"grid\.json: it is there, .* move it away"):
            check_target(path)
        assert path.read_text() == text


@pytest.mark.parametrize("text", ["", "{}", '{"schema_version": 9}', "[1]"])
def test_file_that_is_no_grid_is_refused_by_its_name(tmp_path, text):
    path = tmp_path / "grid.json"
    path.write_text(text)
    with pytest.raises(GridFileError, match=r"grid\.json"):
        read_grid(path)


@pytest.mark.parametrize(
    ("place", "value", "expected"),
    [
        ("results.0.plan.strategy", "treads", "did you mean threads"),
        ("results.0.plan.node_batch", 0, "node_batch=0: use a whole number of at least 1"),
        (
            "results.0.plan.node_batch",
            10**400,
            "000: use a whole number of at most 9007199254740992",
        ),
        ("results.0.measurement.samples_s", [0.5, 0], "use a positive number of seconds"),
        ("results.0.measurement.drift", 0, "use numbers above 0"),
        ("results.0.measurement.spent_s", 1e999, "Infinity is no JSON number"),
        ("results.0.elapsed_s", float("nan"), "NaN is no JSON number"),
        ("results.0.elapsed_s", -1, "results[0].elapsed_s=-1: expected a number of at least 0"),
        ("results.0.peak_memory_bytes", 10**400, "expected a whole number of at most"),
        ("case.default_batch", 0, "case.default_batch=0: expected a whole number of at least 1"),
        ("node.cpu.usable_cores", 10**9, "node.cpu.usable_cores=1000000000: expected a whole num"),
    ],
)
def test_trial_that_cannot_be_is_refused_by_the_name_of_its_file(tmp_path, place, value, expected):
    """The story: a time of 0 and a drift of 0 were called bugs of ddlplan; with a time of NaN the
    recorded clock stood still, and so many cores filled the memory with layouts."""
    path = tmp_path / "grid.json"
    write_grid(make_grid(), path)
    document = inner = json.loads(path.read_text())
    *outer, last = place.split(".")
    for key in outer:
        inner = inner[int(key) if key.isdecimal() else key]
    inner[last] = value
    path.write_text(json.dumps(document))
    with pytest.raises(GridFileError) as refused:
        read_grid(path)
    assert str(refused.value).startswith(f"{path}: ")
    assert expected in str(refused.value)


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
    with pytest.raises(TrialFailedError, match="for 1000 steps, more time than") as failed:
        contender.make_steps(1000, time_limit_s=0.001)
    assert failed.value.outcome is Outcome.TIME_LIMIT


def test_turn_of_a_race_is_played_whole_and_without_the_drift_of_then():
    """Each mean of a turn was played as one step: means of these had half the noise of turns."""
    turns = {1: 1.0, 2: 1.2, 3: 2.0, 4: 2.4}  # in the third and fourth round all was slow
    late = {number: 1.5 * turns[number] for number in (3, 4)}
    results = [raced(PLAIN, turns), raced(replace(PLAIN, allocator="retain"), late)]
    replay, medians_s = Replay(replace(make_grid(), results=tuple(results))), []
    for result in results:
        contender = replay.start(result.plan)
        contender.make_steps(len(result.measurement.warmup_s), time_limit_s=100)
        played = [contender.make_steps(8, time_limit_s=100) for _ in result.measurement.rounds]
        assert all(len({step.time_s for step in turn}) == 1 for turn in played)
        times_s, known_s = [turn[0].time_s for turn in played], result.measurement.samples_s
        assert max(times_s) / min(times_s) == pytest.approx(max(known_s) / min(known_s))
        medians_s.append(median(times_s))
    assert medians_s[1] / medians_s[0] == pytest.approx(1.5)


def raced(plan: Plan, turns: dict[int, float]) -> TrialResult:
    times_s = tuple(turns.values())
    measured = Measurement(
        warmup_s=(3.0, 2.0), samples_s=times_s, rounds=tuple(turns), spent_s=8 * sum(times_s)
    )
    outcome, spent_s = Outcome.OK, measured.total_s
    return TrialResult(
        plan=plan, role=Role.SEARCH, outcome=outcome, measurement=measured, elapsed_s=spent_s + 5
    )


def test_plan_that_was_not_recorded_fails():
    with pytest.raises(TrialFailedError, match="not among the recorded plans"):
        Replay(make_grid()).start(replace(PLAIN, node_batch=31))


def test_search_on_a_grid_finds_its_best_plan():
    grid = make_grid()
    request = TuneRequest(workload=Workload(use_case="imagined"), budget_s=300)
    found = replay_grid(grid, request).plan.plan
    best_s = min(MACHINE.sample_s(result.plan) for result in grid.results)
    assert MACHINE.sample_s(found) < 1.02 * best_s
