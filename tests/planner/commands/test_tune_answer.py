"""What a search says of the plan it has found."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from sample_plan import FOUND

from launch.plan import Plan
from launch.scripts.program import Program
from launch.workload import Workload
from planner.api.scripts.tuning import ScriptTuneResult, TunedScript
from planner.api.tuning import NodeTuneResult, TuneResult
from planner.commands.scripts.tune import tune
from planner.commands.tune import describe_comparison, show_here, show_hosts
from planner.plans.stored_plan import ComparedPlan, StoredPlan
from planner.report.output import Output
from planner.scripts.naming import script_name
from planner.tuning.conclusion import TuneOutcome
from planner.tuning.tune_request import TuneRequest
from probes.timing import Interval

DEFAULTS = Plan(strategy="threads", node_batch=32, threads_per_process=2)
COMPARED = ComparedPlan(
    name="defaults",
    plan=DEFAULTS,
    throughput_samples_per_s=8.7,
    speedup=Interval(median=1.0, low=1.0, high=1.0, count=1),
)


def test_defaults_that_nothing_beats_are_not_compared_with_themselves():
    """They were "1.00 times (1.00 to 1.00) as fast"."""
    said = describe_comparison(COMPARED, DEFAULTS)
    assert said == "the best plan itself: nothing faster was found"
    other = Plan(strategy="sequential", node_batch=32)
    assert describe_comparison(COMPARED, other).startswith("1.00 times (1.00 to 1.00) as fast")


def make_result(
    plan: StoredPlan = FOUND, *hosts: str, before_search_s: float | None = None, **changes
) -> TuneResult:
    outcome = TuneOutcome(
        plan=plan,
        defaults=None,
        trials=(),
        new_trials=0,
        stepping_s=77.5,
        interrupted=False,
        warnings=(),
        epochs=10,
        default_batch=FOUND.plan.node_batch,
        one_core_unknown="no time or memory was left for it: raise --budget",
    )
    outcome = replace(outcome, **changes)
    nodes = tuple(NodeTuneResult(host=host, outcome=outcome) for host in hosts or ("vm",))
    return TuneResult(
        nodes=nodes, elapsed_s=164.0, before_search_s=before_search_s, interrupted=False
    )


def show(*, before_search_s: float | None = None, as_json: bool = False) -> None:
    result = make_result(before_search_s=before_search_s)
    show_here(result, "ddlplan launch", Output("tune", as_json=as_json))


def test_json_of_a_patched_plan_has_the_warning_that_it_changes_the_script(
    tmp_path, monkeypatch, capsys
):
    """It was printed behind the JSON, which did not have it."""
    words = ["python", "train.py"]
    plan = Plan(strategy="script", node_batch=32, options={"patch_compile": True})
    found = replace(FOUND, id=1, use_case=script_name(words), plan=plan)
    result = ScriptTuneResult(tuned=make_result(found), steps="optimizer SGD")
    monkeypatch.setattr("planner.commands.scripts.tune.tune_script", lambda *_, **__: result)
    script = TunedScript(program=Program.parse(words, cores=2), patches=("model",))
    request = TuneRequest(workload=Workload(use_case=found.use_case), budget_s=60.0)
    tune(script, request, str(tmp_path / "planner.db"), Output("tune", as_json=True), waits=True)
    (warning,) = json.loads(capsys.readouterr().out)["warnings"]
    assert "changes the script itself (compile)" in warning


@pytest.mark.parametrize("show_found", [show_here, show_hosts])
def test_plan_of_made_up_data_says_so_where_it_is_found(capsys, show_found):
    for is_generated in (True, False):
        result = make_result(replace(FOUND, is_generated=is_generated))
        show_found(result, "ddlplan launch", Output("tune", as_json=False))
        said = " ".join(capsys.readouterr().out.split())
        assert ("data generated: the use case made its samples up" in said) is is_generated


def test_run_on_one_core_that_was_not_measured_has_its_reason_in_a_line(capsys):
    show()
    said = "one core   not measured: no time or memory was left for it: raise --budget"
    assert said in capsys.readouterr().out.splitlines()
    assert len(said) <= 80
    show(as_json=True)
    unknown = json.loads(capsys.readouterr().out)["data"]["one_core_unknown"]
    assert unknown == "no time or memory was left for it: raise --budget"


def test_figures_that_say_nothing_are_told_as_such_in_their_lines(capsys):
    wide = Interval(median=427.7, low=67.4, high=2712.6, count=9)
    compared = (replace(COMPARED, speedup=wide), replace(COMPARED, name="one_core"))
    plan = replace(FOUND, throughput_samples_per_s=wide, comparisons=compared)
    show_here(make_result(plan), "ddlplan launch", Output("tune", as_json=False))
    lines = " ".join(capsys.readouterr().out.split())
    said = "; not reliable: tune again with a larger --budget"
    assert lines.count(said) == 2
    assert f"{said} one core" in lines
    show_here(make_result(exact=plan), "ddlplan launch", Output("tune", as_json=False))
    (fp32,) = (line for line in capsys.readouterr().out.split("\n") if "in fp32" in line)
    assert fp32.endswith(said)
    twice = make_result(replace(plan, speedup=wide))
    show_hosts(twice, "ddlplan launch", Output("tune", as_json=False))
    remark = "samples/s and speedup not reliable: tune again with a larger --budget"
    assert remark in capsys.readouterr().out


def test_hosts_have_the_reasons_and_the_batch_that_one_machine_has(capsys):
    """Their table has no such columns, and a batch above the use case's own was never named."""
    larger = {"default_batch": 32, "own_batch_unknown": "its trial failed: crash"}
    result = make_result(FOUND, "n1", "n2", **larger)
    show_hosts(result, "ddlplan launch", Output("tune", as_json=False))
    said = capsys.readouterr().out
    for line in (
        "one core   n1, n2: not measured: no time or memory was left for it",
        "own batch  n1, n2: not known: its trial failed: crash",
        "batch      n1, n2: 128 in place of 32: fewer, larger steps",
    ):
        assert said.count(line) == 1


def test_what_the_settings_and_a_larger_batch_gain_are_separate_figures(capsys):
    by_batch = Interval(median=1.06, low=0.99, high=1.14, count=6)
    by_settings = Interval(median=1.39, low=1.31, high=1.46, count=6)
    own = replace(COMPARED, name="own_batch", speedup=by_batch)
    found = replace(FOUND, comparisons=(own,))
    result = make_result(found, default_batch=32, settings_gain=by_settings)
    show_here(result, "ddlplan launch", Output("tune", as_json=False))
    said = "settings 1.39 (1.31 to 1.46) times, larger batch 1.06 (0.99 to 1.14) times"
    assert f"gains      {said}" in capsys.readouterr().out.splitlines()
    show_here(result, "ddlplan launch", Output("tune", as_json=True))
    gain = json.loads(capsys.readouterr().out)["data"]["settings_gain"]
    assert gain == {"median": 1.39, "ci_low": 1.31, "ci_high": 1.46}


@pytest.mark.parametrize(
    ("before_search_s", "said"),
    [
        (37.0, "2m 44s, 37s before the search, 61 % of the rest in training steps"),
        (9.0, "2m 44s, 47 % of it in training steps"),
        (None, "2m 44s, 47 % of it in training steps"),
    ],
)
def test_long_time_before_the_search_is_told_apart(capsys, before_search_s, said):
    show(before_search_s=before_search_s)
    line = f"time       {said}"
    assert line in capsys.readouterr().out.splitlines()
    assert len(line) <= 80
