"""A script, tuned and launched: what is stored, what runs, and how its end is told."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from launch.system.machine_lock import Occupant, timing_alone


def test_tune_says_how_it_saw_the_steps_and_compares_with_the_script_as_it_is(tuned_script):
    document = json.loads((tuned_script.folder / "out").read_text())["data"]
    assert document["steps"] == "optimizer SGD, 1 step per batch of 32"
    assert document["plan"]["strategy"] == "script"
    assert document["plan"]["use_case"].startswith("script:")
    (trial,) = [t for t in tuned_script.data("trials") if t["role"] == "defaults"][:1]
    assert trial["options"] == {"own_settings": True, "batch": 32}


def test_tune_says_which_values_it_tries_and_which_is_the_users_own(script_said):
    assert "values: batch=32,64; the first is your own: --choices names others\n" in script_said


def test_trials_leave_nothing_in_the_folder_of_the_user(script_folder):
    assert {path.name for path in script_folder.iterdir()} == {
        *("train.py", "torch", "planner.db", "out", "said"),
    }


def test_launch_runs_the_script_in_its_folder_and_holds_its_rate_against_that_of_the_plan(
    tuned_script, command, plan_id
):
    ended = tuned_script.run("launch", "--plan", plan_id, "--json", *command("300"))
    assert ended.code == 0, ended.err
    (stored,) = tuned_script.data("plans", "list")
    assert stored["id"] == plan_id
    plan = tuned_script.data("plans", "show", plan_id)
    assert f"batch {plan['options']['batch']}\n" in ended.err
    assert (tuned_script.folder / "left_behind").exists()
    launched = json.loads(ended.out)["data"]
    measured = launched["throughput_samples_per_s"]
    expected = plan["throughput_samples_per_s"]["median"]
    assert launched["expected_throughput_samples_per_s"] == expected
    assert f"measured {measured:.1f} (" in ended.err
    (run,) = tuned_script.data("runs", "list")
    assert run["state"] == "done"
    assert run["steps"] == 300
    assert run["epochs_done"][-1]["throughput_samples_per_s"] == measured
    shown = tuned_script.run("runs", "show", run["id"]).out
    assert "steps" in shown
    assert "300" in shown
    assert "NaN" not in shown


@pytest.mark.parametrize(("end", "code"), [("fail", 1), ("killed", 128 + 9)])
def test_end_of_the_script_is_that_of_launch(tuned_script, command, end, code, plan_id):
    ended = tuned_script.run("launch", "--plan", plan_id, *command("0", end))
    assert ended.code == code, ended.err
    (run,) = tuned_script.data("runs", "list")
    assert run["state"] == "failed"
    # The story: of one that was killed, its job had been cancelled.
    launched = [job for job in tuned_script.data("jobs", "list") if job["kind"] == "launch"]
    assert [job["state"] for job in launched] == ["failed"]
    shown = tuned_script.run("runs", "show", run["id"]).out
    assert f" {sys.executable} train.py 0 {{batch}} {end}\n" in shown
    assert " not measured, expected " in shown


@pytest.mark.parametrize(
    ("end", "words", "changes"),
    [
        ("raise", f"ModuleNotFoundError: No module named 'weights' in {sys.executable}", {}),
        ("well", "batch 32", {"options": {"batch": 32, "step_regex": "step"}}),
    ],
)
def test_launch_that_fails_quotes_the_words_of_the_scripts_error(
    tuned_script, command, plan_id, end, words, changes
):
    """With --step-regex only its exit code was said."""
    if changes:
        plan_id = import_changed(tuned_script, plan_id, **changes)
    ended = tuned_script.run("launch", "--plan", plan_id, *command("0", end))
    assert ended.code == 1
    assert f"the script has ended, exit code 1: {words}" in ended.errors[-1]
    assert "shim.py" not in ended.err


def test_launched_script_says_whose_times_it_disturbs(tuned_script, command, plan_id):
    """Searches did not know of it either: they began to time beside it."""
    # Not of this process, below which the script is launched.
    theirs = replace(Occupant.of_this_process("ddlplan tune --use-case theirs"), pid=0)
    with timing_alone(theirs, waits=False, on_wait=pytest.fail, on_trouble=pytest.fail):
        ended = tuned_script.run("launch", "--plan", plan_id, *command("0"))
    assert "this training disturbs the times that are measured by process" in ended.err


def test_plan_of_a_script_shows_what_can_be_set_around_it_and_no_more(tuned_script, plan_id):
    shown = tuned_script.run("plans", "show", plan_id).out
    assert f"script               {sys.executable} train.py 100000 {{batch}} well\n" in shown
    stored = json.loads(tuned_script.run("plans", "export", plan_id).out)
    is_compared = stored["speedup"] is not None  # a busy machine may have left no time for that
    assert (" over the script as it is: " in shown) == is_compared
    for of_use_cases in ("fused optimizer", "memory format", "replicas", "epoch", "not tried"):
        assert of_use_cases not in shown


def test_best_plan_of_a_script_is_found_by_its_command(tuned_script, command, plan_id):
    best = tuned_script.run("plans", "best", "--json", *command())
    assert best.document["data"]["id"] == plan_id
    ended = tuned_script.run("plans", "best")
    assert ended.code == 2
    assert "'--use-case', or a command after --: see ddlplan plans best --help" in ended.err


def test_plan_as_json_has_the_command_that_runs_it(tuned_script, plan_id):
    document = tuned_script.data("plans", "export", plan_id)
    assert list(document["commands"]) == ["script"]
    assert f"{sys.executable} train.py 100000" in document["commands"]["script"]


def test_launch_of_another_command_names_the_tune_that_finds_its_plan(
    tuned_script, command, plan_id
):
    ended = tuned_script.run("launch", *command("5"))
    assert ended.code == 3
    assert "ddlplan tune --choices batch=A,B -- " in ended.err
    assert " 5 {batch} well" in ended.err
    assert f", or pass --plan {plan_id}, of " in ended.err


def test_launch_with_a_value_in_the_place_of_a_placeholder_names_the_plan_of_the_script(
    tuned_script, command, plan_id
):
    words = ["64" if word == "{batch}" else word for word in command()]
    ended = tuned_script.run("launch", *words)
    assert ended.code == 3
    assert f", or pass --plan {plan_id}, of " in ended.err


@pytest.mark.parametrize("kind", ["shell", "torchrun", "python"])
def test_exported_plan_runs_the_script_without_ddlplan(tuned_script, command, kind, plan_id):
    exported = tuned_script.run("plans", "export", plan_id, "--format", kind)
    assert exported.code == 0, exported.err
    runner = [sys.executable] if kind == "python" else ["sh"]
    file = tuned_script.folder / "exported"
    file.write_text(exported.out.replace(command()[3], "0"))
    ran = subprocess.run(
        [*runner, str(file)], cwd=tuned_script.folder, capture_output=True, text=True
    )
    batch = tuned_script.data("plans", "show", plan_id)["options"]["batch"]
    assert ran.returncode == 1
    assert ran.stderr.endswith(f"batch {batch}\n")


def test_json_of_a_script_does_not_claim_to_know_its_loader_workers(tuned_script, plan_id):
    documents = [
        tuned_script.data("plans", "show", plan_id),
        json.loads(tuned_script.run("plans", "export", plan_id).out),
        *tuned_script.data("trials"),
    ]
    assert {document["loader_workers"] for document in documents} == {None}


def test_plan_of_a_script_survives_export_and_import(tuned_script, plan_id):
    exported = tuned_script.run("plans", "export", plan_id)
    (tuned_script.folder / "plan.json").write_text(exported.out)
    assert tuned_script.run("plans", "rm", plan_id).code == 0
    assert tuned_script.run("plans", "import", "plan.json").code == 0
    (plan,) = tuned_script.data("plans", "list")
    assert tuned_script.data("plans", "show", plan["id"])["options"]["batch"] in (32, 64)


def import_changed(tuned_script, plan_id, **changes):
    """Store the same plan with changes; give its number."""
    document = json.loads(tuned_script.run("plans", "export", plan_id).out)
    document.get("plan", document).update(changes)
    (tuned_script.folder / "plan.json").write_text(json.dumps(document))
    assert tuned_script.run("plans", "import", "plan.json").code == 0
    return max(stored["id"] for stored in tuned_script.data("plans", "list"))


def test_plan_sets_threads_and_one_that_changes_the_script_says_so_and_runs_nowhere_else(
    tuned_script, command, plan_id
):
    options = {"batch": 32, "patch_autocast": "bf16"}
    changed = import_changed(tuned_script, plan_id, threads_per_process=1, options=options)
    exported = tuned_script.run("plans", "export", changed, "--format", "shell")
    assert exported.code == 2
    assert "changes the script itself (autocast=bf16)" in exported.err
    launched = tuned_script.run("launch", "--plan", changed, *command("5"))
    assert (launched.code, launched.out) == (0, "threads 1 batch 32\n"), launched.err
    assert "changes the script itself: autocast" in launched.err


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--precision", "bf16"], "--precision"),
        (["--hosts", "hosts.txt"], "--hosts"),
        (["--detach"], "--detach"),
        (["--choices", "batch=32", "--patch", "model,loss"], "choose one of loader, model"),
        (["--choices", "batch=32", "--patch", "model", "--no-python"], "--patch and --no-py"),
        (["--choices", "batch"], "--choices 'batch'"),
        ([], "placeholder {batch} without choices"),
        (["--choices", "bacth=32"], "did you mean"),
    ],
)
def test_what_a_script_cannot_have_is_refused_before_anything_starts(
    ddlplan, command, options, line
):
    (ddlplan.folder / "train.py").write_text("raise SystemExit('was started')\n")
    ended = ddlplan.run("tune", *options, *command())
    assert ended.code == 2
    assert len(ended.errors) == 1
    assert line in ended.err
    assert ddlplan.listing() == ["train.py"]


def test_missing_file_is_named_at_once_though_the_machine_is_in_use(ddlplan):
    (ddlplan.folder / "train.py").touch()
    theirs = Occupant.of_this_process("ddlplan tune --use-case theirs")
    with timing_alone(theirs, waits=False, on_wait=pytest.fail, on_trouble=pytest.fail):
        ended = ddlplan.run("tune", "--no-wait", "--", sys.executable, "trian.py")
    assert ended.code == 2
    assert len(ended.errors) == 1
    assert f"no file 'trian.py' in {ddlplan.folder}: did you mean train.py?" in ended.err


def test_dashes_before_a_command_may_be_left_out(ddlplan):
    words = ["python", "train.py", "--batch-size", "{batch}"]
    (ddlplan.folder / "train.py").touch()
    ended = ddlplan.run("launch", *words, "--dry-run")
    assert ended.code == 3
    assert "ddlplan tune --choices batch=A,B -- python train.py --batch-size {batch}" in ended.err
    assert "warning: --dry-run behind 'python' is the command's own: write options" in ended.err


def test_use_case_in_place_of_a_command_is_told_its_option(ddlplan):
    ended = ddlplan.run("tune", "simplebig", "--budget", "3m")
    assert ended.code == 2
    assert "program 'simplebig'" in ended.err
    assert "a use case needs --use-case" in ended.err


def test_option_that_a_variable_has_set_is_refused_by_the_name_of_the_variable(ddlplan):
    """The story: it was named as an option, to be left out, that nobody had typed."""
    ended = ddlplan.run("tune", "--", "python", "train.py", DDLPLAN_PRECISION="bf16")
    assert ended.code == 2
    assert "error: DDLPLAN_PRECISION and a command after --: it is for use cases" in ended.err


def test_misspelled_python_is_told_its_name(ddlplan):
    ended = ddlplan.run("tune", "--", "pyhton", "train.py", "--budget", "3m")
    assert ended.code == 2
    assert "program 'pyhton' not found: did you mean python?" in ended.err
    assert "--budget" not in ended.err  # behind a --, what is the command's own is in no doubt


def test_options_of_scripts_without_a_script_are_refused(ddlplan):
    ended = ddlplan.run("tune", "--use-case", "simplebig", "--choices", "batch=1,2")
    assert ended.code == 2
    assert "write the script after --" in ended.err


def test_service_is_started_with_no_script(ddlplan):
    ended = ddlplan.run("serve", "--use-case", "script:python train.py")
    assert ended.code == 2
    assert "no server runs a script" in ended.err


def test_broken_script_is_one_line_with_its_own_error(ddlplan, command):
    (ddlplan.folder / "train.py").write_text("undefined\n")
    ended = ddlplan.run("tune", "--choices", "batch=32", *command())
    assert ended.code == 1
    assert len(ended.errors) == 1
    assert "NameError" in ended.errors[0]
