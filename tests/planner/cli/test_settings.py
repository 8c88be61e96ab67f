"""`--set`: settings of a use case, from the command line to its workers, and what a search says."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

CASE = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[2] / "launch/cases")!r})
from precision_cases import NoProducts
from tiny_cases import Decodable

class Set(NoProducts):
    name = "set"

    def __init__(self, width: int = 3, rate: float = 0.1):
        assert (width, rate) == (5, 0.25)

    def dataset(self, data, *, train):
        size = 45 if train else 10
        return Decodable(size, f"set {{size}}")
"""
SETTINGS = ("--set", "rate=0.25", "--set", "width=5")


@pytest.fixture(scope="module")
def searched(tuned_folder, command_line, tmp_path_factory):
    """A folder with a search of a use case with settings, its name, and how the search ended.

    Nothing in it can be faster in bf16, on any machine, and its pictures can be decoded once.
    """
    command = command_line(tmp_path_factory.mktemp("set"))
    shutil.copy(tuned_folder / "planner.db", command.folder)
    case = command.folder.resolve() / "set_case.py"
    case.write_text(CASE)
    words = ("--precision", "auto", "--budget", "5m", "--trials", 0, "--epochs", 3, "--json")
    kept = str(command.folder / "kept")
    ended = command.run("tune", "--use-case", f"{case}:Set", *SETTINGS, *words, DDLPLAN_CACHE=kept)
    assert ended.code == 0, ended.err
    return command, f"{case}:Set", ended


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
def test_settings_have_plans_of_their_own_and_reach_the_workers(searched):
    command, case, _ = searched
    name = f"{case},rate=0.25,width=5"
    assert [plan["use_case"] for plan in command.data("plans", "list")][-1] == name
    assert {trial["use_case"] for trial in command.data("trials", "--use-case", name)} == {name}
    trained = command.launch(case, *SETTINGS)
    assert trained.code == 0, trained.err
    (listed,) = command.data("runs", "list")
    assert listed["use_case"] == name
    assert command.launch(name, "--dry-run").code == 0  # it finds what --set has found
    other = command.launch(case, "--set", "width=5")
    assert other.code in (2, 3)


@pytest.mark.long
def test_bf16_that_is_left_out_is_a_warning_and_fp32_is_measured(searched):
    *_, ended = searched
    warnings = ended.document["warnings"]
    assert [text for text in warnings if text.startswith("bf16 is not offered: ")]
    assert [text for text in warnings if text.startswith("bf16_internal is not offered: ")]
    data = ended.document["data"]
    assert data["plan"]["precision"] == "fp32"
    assert data["fp32"] is None
    assert data["compile_s"] is None
    assert data["epochs"] == 3


@pytest.mark.long
def test_room_that_decoded_pictures_need_is_said(searched):
    command, _, ended = searched
    assert ended.document["data"]["pixel_bytes"] == 55 * 192
    said = f"decoded pictures: 10.3 KiB in {command.folder / 'kept'}, and as much memory"
    assert said in ended.err
