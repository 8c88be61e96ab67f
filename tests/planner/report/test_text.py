"""Plans and trials as text, CSV and JSON."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace

import pytest
import sample_plan
import worth_cases
from sample_plan import NOON

from launch.plan import Plan
from planner.plans.measured_steps import StepPoint, steps_from_points
from planner.quantities import printable
from planner.report.comparison import PlanComparison, comparison_text
from planner.report.figures.plan_figures import compared_plans_figure
from planner.report.output import Output
from planner.report.plan_line import describe_settings
from planner.report.plans import plan_facts, plan_text, plans_csv, plans_table
from planner.report.table import Terminal
from planner.report.trials import trial_json, trials_csv, trials_table
from planner.report.worth import baseline_row, worth_facts, worth_text
from planner.trials.result import Outcome, Role, TrialResult
from planner.tuning.study import StoredTrial
from planner.worth.worth import assess
from probes import codec
from probes.disturbance import Disturbance
from probes.timing import DisturbedTurn, Interval, Measurement

PIPE = Terminal()
SCREEN = Terminal(width=80)

FOUND = replace(
    sample_plan.FOUND,
    id=7,
    fingerprint="sha256:" + "a" * 64,
    plan=replace(sample_plan.FOUND.plan, memory_format="channels_last"),
)
LONG = replace(
    FOUND, id=12, use_case="projects/vision/mine.py:MyCase", node="gpu01.cluster.example.org"
)
GOOD = TrialResult(
    plan=Plan(strategy="threads", node_batch=32, threads_per_process=2),
    role=Role.FINAL,
    outcome=Outcome.OK,
    measurement=Measurement(warmup_s=(2.0,), samples_s=(1.0,) * 9),
    peak_memory_bytes=3 * 2**30,
    elapsed_s=11.04,
    parameters={"threads.count": 2},
)
FAILED = replace(
    GOOD,
    role=Role.SEARCH,
    outcome=Outcome.OUT_OF_MEMORY,
    measurement=None,
    peak_memory_bytes=None,
    reason="worker 1 of 2 was killed and the cgroup counted an out-of-memory kill: "
    "lower --max-batch to 64 or less",
    log_tail="Killed\n",
)
TRIALS = [
    StoredTrial(id=10 + n, study_id=3, number=n, created_at=NOON, result=result)
    for n, result in enumerate([GOOD, FAILED, GOOD])
]


def speed(plan_id, median, half):
    interval = Interval(median=median, low=median - half, high=median + half, count=9)
    return replace(FOUND, id=plan_id, throughput_samples_per_s=interval)


def widest(text):
    return max(len(line) for line in text.splitlines())


def test_plans_are_a_line_each_with_their_intervals():
    table = plans_table([(FOUND, ())], PIPE)
    assert table.splitlines() == [
        "ID  USE CASE   HOST  STRATEGY   SETTINGS                                         SAMPLES/S"
        "     SPEEDUP    MEMORY  CREATED",
        " 7  simplebig  vm    processes  2x1 batch 128 channels_last wait_policy=passive  42.8 ±0.7"
        "  2.02 ±0.05  1.15 GiB  2026-11-20",
    ]


def test_a_table_of_plans_fits_a_terminal_of_80_columns():
    table = plans_table([(FOUND, ()), (LONG, ["made on other hardware"] * 5)], SCREEN)
    assert widest(table) <= 80
    assert all(line == line.rstrip() for line in table.splitlines())
    for kept in ("42.8 ±0.7", "2.02 ±0.05", "processes", "stale: made on other hardware"):
        assert kept in table


def test_rows_of_a_narrow_terminal_tell_files_of_one_folder_apart():
    """Two plans of /tmp/newcomer were both of "/tmp/newc…"."""
    folder = "/home/somebody/projects/vision"
    two = [replace(LONG, use_case=f"{folder}/{name}.py:Train") for name in ("one", "two")]
    lines = plans_table([(plan, ()) for plan in two], SCREEN).splitlines()
    assert "one.py:Train" in lines[1]
    assert "two.py:Train" in lines[3]
    assert lines[2].strip() == describe_settings(LONG.plan)


def test_columns_that_a_terminal_has_no_room_for_are_named_below_the_table():
    table = plans_table([(LONG, ())], Terminal(width=60))
    assert "CREATED" not in table.splitlines()[0]
    assert table.splitlines()[-1] == ("left out for want of room: MEMORY, CREATED (--json has all)")
    assert "left out" not in plans_table([(LONG, ())], PIPE)


def test_a_pipe_gets_one_line_per_plan_and_nothing_cut_off():
    table = plans_table([(FOUND, ()), (LONG, ["made on other hardware"])], PIPE)
    assert len(table.splitlines()) == 3
    assert "…" not in table
    assert "projects/vision/mine.py:MyCase" in table
    assert table.isascii() or set(filter(lambda c: not c.isascii(), table)) == {"±"}


def test_memory_of_a_gpu_is_shown_where_a_plan_has_one():
    on_gpu = replace(TRIALS[0], result=replace(GOOD, peak_device_memory_bytes=9 * 2**30))
    assert "GPU MEMORY" not in trials_table(TRIALS, PIPE)
    assert "9.00 GiB" in trials_table([on_gpu], PIPE).splitlines()[1]
    known = [trial_json(trial)["peak_device_memory_bytes"] for trial in (on_gpu, TRIALS[0])]
    assert known == [9 * 2**30, None]
    plan = replace(FOUND, peak_device_memory_bytes=9 * 2**30)
    assert re.search("GPU memory +9.00 GiB", plan_text(plan, (), (), PIPE))
    assert "GPU memory" not in plan_text(FOUND, (), (), PIPE)


def test_trials_show_the_reason_of_those_that_failed():
    screen, pipe = trials_table(TRIALS, SCREEN), trials_table(TRIALS, PIPE)
    assert widest(screen) <= 80
    assert "lower --max-batch" in screen.replace("\n    ", " ")
    assert len(pipe.splitlines()) == 4
    assert FAILED.reason in pipe
    assert "out_of_memory" in pipe
    assert "32.0 ±0.0" in pipe


@pytest.mark.parametrize("width", [20, 40, 60, 80, 100, 200])
def test_tables_of_any_width_are_drawn(width):
    table = trials_table(TRIALS, Terminal(width=width))
    assert "out_of_memory" in table
    if width >= 80:
        assert widest(table) <= width


def test_colour_is_for_terminals_that_want_it():
    assert "\x1b[" not in trials_table(TRIALS, SCREEN)
    coloured = trials_table(TRIALS, Terminal(width=80, color=True))
    assert "\x1b[31mout_of_memory\x1b[0m" in coloured


def test_what_a_plan_is_and_why_is_told_line_by_line():
    text = plan_text(FOUND, (), TRIALS, SCREEN)
    assert widest(text) <= 80
    facts = {line[:21].strip(): line[21:].strip() for line in text.splitlines()}
    assert facts["throughput"] == "42.8 (42.1 to 43.3) samples/s, from 24 measurements"
    assert facts["speedup"].startswith("2.02 (1.97 to 2.06) over sequential with batch 32: 21.2")
    assert facts["evidence"] == "3 trials of study 3: 2 ok, 1 out_of_memory"
    assert facts["option wait_policy"] == "passive"
    assert facts["peak memory"] == "1.15 GiB"
    assert facts["step time"] == "200 ms + 21.9 ms a sample, a fit to batches of 64, 128"
    assert facts["stale"] == "no"


def test_time_of_a_long_step_is_told_in_seconds():
    """The story: a step of 25 seconds was said to take "2.54e+04 ms"."""
    points = [StepPoint(node_batch=64, step_s=12.8), StepPoint(node_batch=128, step_s=25.4)]
    facts = dict(plan_facts(replace(FOUND, step_time=steps_from_points(points)), (), ()))
    assert facts["step time"].endswith("a step of 128 takes 25.4 s, by the throughput 2.99 s")


def test_figure_with_a_wide_interval_is_told_to_be_not_reliable_with_the_remedy():
    """A plan of a busy machine was "170.74 (79.59 to 366.24)" times as fast, without a word."""
    wide = replace(FOUND, speedup=Interval(median=170.74, low=79.59, high=366.24, count=9))
    busy = DisturbedTurn(round=1, disturbance=Disturbance(others_cores=1.1), was_repeated=False)
    measured = replace(GOOD.measurement, rounds=tuple(range(9)), disturbed=(busy,))
    disturbed = replace(TRIALS[0], result=replace(GOOD, measurement=measured))
    for trials, remedy in (([disturbed], "on a quiet machine"), (TRIALS, "with a larger --budget")):
        facts = dict(plan_facts(wide, (), trials))
        assert facts["speedup"].endswith(f"/s; not reliable: tune again {remedy}")
        assert "reliable" not in facts["throughput"]
    remark = "speedup not reliable: tune again on a quiet machine or with a larger --budget"
    assert f"\n    {remark}\n" in plans_table([(wide, ())], Terminal(width=100))
    assert "DOUBTS" not in plans_table([(FOUND, ())], PIPE)


@pytest.mark.parametrize(
    ("disturbance", "remedy"),
    [
        (Disturbance(stolen_cores=0.5), "tune again with a larger --budget"),
        (Disturbance(throttled_cores=1.0), "raise the quota and tune again"),
        (
            Disturbance(others_cores=1.1, overheated=1),
            "improve the cooling of the processor and tune again on a quiet machine",
        ),
    ],
)
def test_remedy_of_a_figure_that_is_not_reliable_is_that_of_what_disturbed_it(disturbance, remedy):
    """The story: a quiet machine was asked for where nothing but the processor's heat was there."""
    wide = replace(FOUND, speedup=Interval(median=170.74, low=79.59, high=366.24, count=9))
    turn = DisturbedTurn(round=1, disturbance=disturbance, was_repeated=False)
    measured = replace(GOOD.measurement, rounds=tuple(range(9)), disturbed=(turn,))
    disturbed = replace(TRIALS[0], result=replace(GOOD, measurement=measured))
    facts = dict(plan_facts(wide, (), [disturbed]))
    assert facts["speedup"].endswith(f"/s; not reliable: {remedy}")


def test_a_plan_without_baseline_says_so():
    bare = replace(FOUND, speedup=None, baseline=None, peak_memory_bytes=None, step_time=None)
    text = plan_text(bare, ["made on other hardware"], (), PIPE)
    assert "not known: the plan and the baseline had no turns side by side" in text
    assert "not measured with other batches" in text
    assert "evidence" not in text
    assert "stale                made on other hardware" in text


@pytest.mark.parametrize(
    ("first", "second", "conclusion"),
    [
        (speed(1, 40, 1), speed(2, 50, 1), "plan 2 is 1.25 times as fast as plan 1"),
        (speed(1, 50, 1), speed(2, 40, 1), "plan 1 is 1.25 times as fast as plan 2"),
        (speed(1, 40, 1), speed(2, 41, 1), "no difference shown"),
        (speed(1, 40, 1), speed(2, 42, 1), "no difference shown"),  # the ends touch
        (speed(1, 40, 1), speed(1, 40, 1), "no difference shown"),
    ],
)
def test_a_plan_is_faster_only_where_the_intervals_lie_apart(first, second, conclusion):
    comparison = PlanComparison(first, second)
    assert comparison.conclusion.startswith(conclusion)
    assert conclusion in comparison_text(comparison, SCREEN)


def test_script_has_its_command_for_a_name_and_its_samples_are_not_those_of_others():
    name = "script:python train.py '{batch}'"
    comparison = PlanComparison(replace(speed(1, 40, 1), use_case=name), speed(2, 50, 1))
    assert comparison.conclusion == "plan 2 has 1.25 times the samples/s of plan 1"
    trials = trials_table([replace(TRIALS[0], use_case=name), *TRIALS[1:]], PIPE)
    picture = compared_plans_figure([comparison.first, comparison.second]).svg
    for text in (comparison_text(comparison, PIPE), *comparison.warnings, trials, picture):
        assert "python train.py {batch}" in text
        assert "script:" not in text


def test_a_comparison_marks_what_differs():
    other = replace(LONG, plan=replace(FOUND.plan, node_batch=64, options={}))
    comparison = PlanComparison(FOUND, other)
    lines = comparison_text(comparison, SCREEN).splitlines()
    marked = [line.split("  ")[0] for line in lines if " * " in line]
    assert marked == ["use case", "host", "batch", "option wait_policy"]
    assert max(map(len, lines)) <= 80
    values = comparison.to_json(first_stale=False, second_stale=True)
    assert values["differences"] == ["use_case", "node", "node_batch", "options"]
    assert (values["first"]["stale"], values["second"]["stale"]) == (False, True)
    assert values["intervals_overlap"] is True
    assert values["throughput_ratio"] == 1


def test_plans_that_are_hard_to_compare_are_compared_with_a_warning():
    assert PlanComparison(FOUND, replace(FOUND, id=8)).warnings == ()
    elsewhere = replace(FOUND, id=8, fingerprint="sha256:bb", use_case="complexsmall")
    first, second = PlanComparison(FOUND, elsewhere).warnings
    assert "not the same work" in first
    assert "different hardware" in second


def test_plans_as_csv_have_every_field_as_plain_values():
    text = plans_csv([(FOUND, ()), (replace(FOUND, speedup=None, baseline=None), ["x"])])
    assert text.count("\r\n") == 3
    first, second = csv.DictReader(text.splitlines())
    assert first["id"] == "7"
    assert first["throughput_samples_per_s_median"] == "42.8"
    assert first["throughput_samples_per_s_samples"] == "24"
    assert first["speedup_ci_low"] == "1.97"
    assert first["baseline_strategy"] == "sequential"
    assert first["peak_memory_bytes"] == "1234567890"
    assert first["created_at"] == "2026-11-20T12:00:00Z"
    assert first["software_torch"] == "2.15.0"
    assert json.loads(first["options"]) == {"wait_policy": "passive"}
    assert json.loads(first["devices"]) == ["cpu"]
    assert (first["stale"], second["stale"]) == ("false", "true")
    assert second["speedup_median"] == second["baseline_strategy"] == ""


def test_no_field_of_a_plan_or_trial_is_missing_from_csv():
    (plan,) = csv.DictReader(plans_csv([(FOUND, ())]).splitlines())
    (trial,) = csv.DictReader(trials_csv(TRIALS[:1]).splitlines())
    for name in codec.to_builtins(FOUND.plan):
        assert name in plan
        assert name in trial
    for name, value in FOUND.to_json(stale=False).items():
        inner = value if isinstance(value, dict) and name != "options" else None
        assert all(f"{name}_{key}" in plan for key in inner) if inner else name in plan
    for name, value in trial_json(TRIALS[0]).items():
        assert name in trial or all(f"{name}_{key}" in trial for key in value)


def test_without_rows_a_table_has_no_columns_and_csv_still_names_its_fields():
    assert plans_table([], PIPE).strip() == ""
    assert plans_csv([]).startswith("id,use_case,node,")
    assert trials_csv([]).startswith("id,study_id,number,")


def test_a_trial_in_json_has_every_sample():
    good, failed = trial_json(TRIALS[0]), trial_json(TRIALS[1])
    assert good["samples_s"] == [1.0] * 9
    assert good["warmup_s"] == [2.0]
    assert good["throughput_samples_per_s"]["median"] == 32
    assert good["strategy"] == "threads"
    assert good["created_at"] == "2026-11-20T12:00:00Z"
    assert failed["throughput_samples_per_s"] is None
    assert failed["samples_s"] == []
    assert failed["reason"] == FAILED.reason
    json.dumps([good, failed], allow_nan=False)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_json_has_no_word_for_is_never_written(value):
    with pytest.raises(ValueError, match="JSON"):
        Output("plans list", as_json=True).finish([value])


@pytest.mark.parametrize(
    ("epochs", "speedup", "said"),
    [
        (0.746, (1.9, 2.0, 2.1), "less than one epoch"),
        (0.9, (1.49, 2.0, 4.0), "0.9 epochs (0.3 to 1.8)"),
        (3.14159, (1.8, 2.0, 2.2), "3.1 epochs (2.6 to 3.9)"),
        # 4.6 to 4.6, as if the time of a baseline's epoch were known better than the speedup.
        (4.6, (79.59, 170.74, 366.24), "4.6 epochs (2.1 to 9.9)"),
        (42.4, (1.0, 1.02, 1.05), "42 epochs (17 to never)"),
        (None, (0.96, 0.98, 1.02), "never"),
    ],
)
def test_epochs_until_tuning_has_paid_have_the_interval_of_the_speedup(epochs, speedup, said):
    worth = assess(worth_cases.STORED, worth_cases.TRIALS, worth_cases.FACTS, worth_cases.NODE)
    low, median, high = speedup
    one = replace(
        worth.baselines[0],
        speedup=Interval(median=median, low=low, high=high, count=9),
        epochs_until_paid=epochs,
        training_until_paid_s=None,
    )
    assert baseline_row(one)["paid"] == said


def test_control_characters_of_a_name_do_not_reach_the_terminal():
    assert printable("a\x1b[31mb\n\x9b\u202e") == "a\\x1b[31mb\\n\\x9b\\u202e"
    evil = replace(FOUND, use_case="a\x1b]0;title\x07.py:x", node="n\nID  forged")
    for terminal in (PIPE, SCREEN):
        table = plans_table([(evil, ["because\r\x1b[2J"])], terminal)
        assert "\x1b" not in table
        assert "\r" not in table
        assert "\nID  forged" not in table
    assert "\x1b" not in plan_text(evil, (), (), PIPE)


def test_what_a_plan_is_worth_fits_a_terminal_of_80_columns():
    worth = assess(worth_cases.STORED, worth_cases.TRIALS, worth_cases.FACTS, worth_cases.NODE)
    text = worth_text(worth, SCREEN)
    assert widest(text) <= 80
    assert "\x1b" not in text
    for said in ("computing", "one core", "PyTorch's defaults", "memory_format", "runner-up"):
        assert said in text
    assert re.search(r"this plan, usual batch .*~1\.11 \(", text)  # no turns side by side
    assert "estimated" in text
    # It was "+130.0 % (-39.4 to +885.8)" beside a speedup that was not known.
    wide = Interval(median=2.3, low=0.606, high=9.858, count=2)
    worth = replace(worth, runner_up=replace(worth.runner_up, lead=wide))
    said = dict(worth_facts(worth))["runner-up"]
    assert "not told apart (by how much is not known" in said
    assert said.endswith("; from trials of other moments, not from turns side by side")
