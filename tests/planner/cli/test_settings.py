"""`--set`: settings of a use case, from the command line to its workers."""

from __future__ import annotations

import pytest

CASE = """
from steady_cases import Steady

class Set(Steady):
    name = "set"

    def __init__(self, width: int = 3, rate: float = 0.1):
        print("made with", width, rate, flush=True)
        assert (width, rate) == (5, 0.25)
"""


@pytest.fixture
def case(tuned, cases):
    file = tuned.folder / "set_case.py"
    file.write_text(f"import sys\nsys.path.insert(0, {str(cases.parent)!r})\n{CASE}")
    return f"{file.resolve()}:Set"


def test_best_plan_of_a_setting_is_found_as_tune_and_launch_find_it(tuned, cases, import_for):
    number = import_for("Steady,width=5")
    words = ("plans", "best", "--use-case", f"{cases}:Steady")
    assert tuned.data(*words)["id"] == 1
    assert tuned.data(*words, "--set", "width=5")["id"] == number
    missing = tuned.run(*words, "--set", "width=6", "--db", "planner.db").refusal(3)
    assert "ddlplan tune --use-case" in missing
    assert "Steady,width=6" in missing


def test_best_plan_of_a_script_takes_no_settings_of_use_cases(tuned):
    best = ("plans", "best", "--set", "width=5")
    error = tuned.run(*best, "--", "python", "train.py").refusal()
    assert "--set and a command after --: it is for use cases alone" in error
    name = "script:python train.py"
    error = tuned.run(*best, "--use-case", name).refusal()
    assert f"--set and --use-case {name!r}: a script has no settings" in error


@pytest.mark.long
def test_settings_have_plans_of_their_own_and_reach_the_workers(tuned, case):
    settings = ("--set", "rate=0.25", "--set", "width=5")
    limits = ("--budget", "5m", "--trials", 0)
    found = tuned.run("tune", "--use-case", case, *settings, *limits)
    assert found.code == 0, found.err
    name = f"{case},rate=0.25,width=5"
    assert [plan["use_case"] for plan in tuned.data("plans", "list")][-1] == name
    assert {trial["use_case"] for trial in tuned.data("trials", "--use-case", name)} == {name}
    trained = tuned.launch(case, *settings)
    assert trained.code == 0, trained.err
    (listed,) = tuned.data("runs", "list")
    assert listed["use_case"] == name
    assert tuned.launch(name, "--dry-run").code == 0  # it finds what --set has found
    other = tuned.launch(case, "--set", "width=5")
    assert other.code in (2, 3)
