"""`ddlplan launch` as people run it: through mpirun, to good and to bad ends."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import sqlite3
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file

from launch.plan import Plan
from planner.store import Store

CASES = Path(__file__).parents[1] / "steady_cases.py"
ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root is refused")


def test_launch_trains_and_leaves_weights_metrics_and_logs(trained_folder):
    out, err = (trained_folder / "out").read_text(), (trained_folder / "err").read_text()
    assert out.startswith("epoch 1/2  loss ")
    assert "runs/1/weights.safetensors" in out
    assert "\x1b" not in out + err
    assert err.count("noise scale not measured: ") == 1
    run = trained_folder / "runs" / "1"
    lines = (run / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["epoch"] for line in lines] == [1, 2]
    first, second = map(json.loads, lines)
    assert first["metrics"].keys() == {"accuracy"}
    assert first["learning_rates"] == [0.1]
    assert first["global_batch"] > 0
    assert first["train_time_s"] > 0
    assert first["validation_time_s"] > 0
    assert 0 < first["elapsed_s"] < second["elapsed_s"]
    assert load_file(run / "weights.safetensors")["0.weight"].shape == (4, 2)
    assert (run / "localhost-worker0.log").exists()
    assert run.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in run.iterdir()} == {0o600}


def test_weights_of_the_best_validation_are_named(trained_folder):
    out = (trained_folder / "out").read_text()
    (line,) = [line for line in out.splitlines() if line.startswith("best ")]
    assert line.startswith("best       runs/1/best-weights.safetensors (epoch ")
    file = trained_folder / "runs" / "1" / "best-weights.safetensors"
    assert load_file(file)["0.weight"].shape == (4, 2)


def test_training_that_has_no_numbers_any_more_stops_and_names_the_last_good_checkpoint(
    import_for, tuned, cases
):
    """The story: it made three epochs of NaN, stored the weights and ended with 0."""
    import_for("Diverges", node_batch=4)
    keep = ("--epochs", "9999", "--checkpoint", "kept", "--checkpoint-every", "1s", "--keep-best")
    error = tuned.launch(f"{cases}:Diverges", *keep, "--json").refusal(1)
    (newest,) = (tuned.folder / "kept").glob("step-*")
    assert f"the last good checkpoint is {newest.resolve()}, " in error
    best = tuned.folder.resolve() / "runs" / "1" / "best-weights.safetensors"
    assert f"the best weights are {best}: lower the learning rate" in error
    stopped = (
        r"error: the training loss of step (\d+) \(epoch \d+\) is nan: the training was stopped"
    )
    assert (found := re.match(stopped, error)) is not None
    assert json.loads((newest / "manifest.json").read_bytes())["step"] == int(found[1]) - 1
    assert "or train on with --allow-nan" in error
    assert best.exists()
    assert not best.with_name("weights.safetensors").exists()
    tuned.wait_until_all_ended()


@pytest.mark.parametrize("has_steps", [True, pytest.param(False, marks=pytest.mark.long)])
def test_interrupt_that_was_ignored_at_the_start_ends_as_an_interrupt(has_steps, tuned, steady):
    """The story: a script's ``ddlplan launch &`` ignores SIGINT. One before the first step
    was ignored, as was every later one. What is left and what is lost is said. A training is
    listed while it runs, and after it was cancelled."""
    usual = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        process = tuned.start_launch(steady, "--epochs", "100000", "--json")
    finally:
        signal.signal(signal.SIGINT, usual)
    if has_steps:
        tuned.wait_until((tuned.folder / "runs" / "1" / "metrics.jsonl").exists, "launch")
        tuned.wait_until(lambda: most_processes(tuned) >= 3, "its use: of rank, server and worker")
        (running,) = tuned.data("runs", "list", "--state", "running")
        assert running["state"] == "running"
        assert running["heartbeat_at"] is not None
    else:
        tuned.wait_until(lambda: tuned.processes("launch.rank"), "launch")
    process.send_signal(signal.SIGINT)
    ended = tuned.end(process)
    assert ended.code == ended.document["error"]["code"] == 130
    assert ended.err.splitlines()[-1] == "interrupted"
    assert not ended.errors
    assert "Traceback" not in ended.err
    tuned.wait_until_all_ended()
    if has_steps:
        (line,) = [line for line in ended.err.splitlines() if "weights of the last step" in line]
        assert "are in runs/1/weights.safetensors; the state of the optimizer is lost, " in line
        assert (tuned.folder / "runs" / "1" / "weights.safetensors").exists()
        (over,) = tuned.data("runs", "list")
        assert (over["state"], over["error"]) == ("cancelled", None)
        assert over["steps"] >= running["steps"]


def most_processes(tuned):
    """Give the most processes of the first training that a sample has seen."""
    with Store.open(str(tuned.folder / "planner.db")) as store:
        found = store.trainings.usage(1)
    return max((max(host.processes.maximum) for host in found.values()), default=0)


def test_dying_worker_ends_the_job_and_shows_its_last_words(import_for, tuned, cases):
    import_for("Dies")
    ended = tuned.launch(f"{cases}:Dies", "--json")
    error = ended.refusal(1)
    assert "on localhost: killed by signal 9 (SIGKILL)" in error
    log = error.rpartition("see ")[2]
    assert log.startswith(str(tuned.folder / "runs" / "1" / "localhost-worker"))
    assert "my last word" in ended.err
    assert "Traceback" not in ended.err
    tuned.wait_until_all_ended()


def test_data_of_no_use_end_a_launch_with_nothing_written(import_for, tuned, cases):
    import_for("Steady", use_case="simplebig")
    (tuned.folder / "photos").mkdir()
    before = tuned.listing()
    refused = tuned.launch("simplebig", "--data", "photos", "--json")
    assert "has no photos" in refused.refusal()
    assert tuned.listing() == before


def test_place_where_no_run_can_be_kept_is_an_error_of_one_line(tuned, steady):
    (tuned.folder / "runs").write_text("")
    ended = tuned.launch(steady)
    assert ended.code == 2
    assert ended.err.splitlines()[-1].startswith("error: folder ")
    assert "Traceback" not in ended.err


def test_options_of_several_hosts_that_one_host_has_no_use_for_are_a_warning(tuned, steady):
    """They did nothing, and nothing was said."""
    words = ("--wire", "top1", "--all-reduce", "tree", "--all-hosts", "--keep-shares")
    ended = tuned.launch(steady, *words, "--dry-run")
    assert ended.code == 0
    warnings = [line for line in ended.err.splitlines() if line.startswith("warning:")]
    unused = "--wire top1, --all-reduce tree, --all-hosts, --keep-shares and one host"
    assert [w for w in warnings if unused in w]
    usual = tuned.launch(steady, "--wire", "fp32", "--all-reduce", "ring", "--dry-run")
    assert "one host" not in usual.err


def test_plan_knows_its_use_case(tuned, steady):
    """`launch --plan 1` asked for the use case, and was refused if it was not that of the plan."""
    dry = ("launch", "--allow-run-as-root", "--plan", 1, "--dry-run")
    assert tuned.run(*dry).out == tuned.run(*dry, "--use-case", steady).out != ""


def test_dry_run_starts_and_writes_nothing(tuned, steady):
    before = tuned.listing()
    ended = tuned.launch(steady, "--dry-run")
    assert ended.code == 0
    assert ended.out.splitlines()[0].split()[0].endswith("mpirun")
    assert "worker 0: cores" in ended.out
    assert "OMP_NUM_THREADS=1" in ended.out
    described = tuned.launch(steady, "--dry-run", "--json").document["data"]
    assert described.keys() >= {"command", "nodes", "environment"}
    assert tuned.listing() == before


def test_dry_run_shows_how_threads_wait(import_for, tuned, steady):
    number = import_for(
        strategy="threads", processes=1, replicas=1, options={"wait_policy": "passive"}
    )
    shown = tuned.launch(steady, "--plan", str(number), "--dry-run", "--json").document["data"]
    assert shown["nodes"][0]["environment"]["OMP_WAIT_POLICY"] == "PASSIVE"


@ROOT
def test_root_must_say_that_root_may_run_mpirun(tuned, steady, monkeypatch):
    monkeypatch.delenv("OMPI_ALLOW_RUN_AS_ROOT", raising=False)
    before = tuned.listing()
    refused = tuned.run("launch", "--use-case", steady, "--json")
    assert "--allow-run-as-root" in refused.refusal(7)
    assert tuned.listing() == before


def test_stale_plan_is_used_only_when_that_is_asked_for(import_for, tuned, steady):
    number = import_for(software={"python": "3.11.7", "torch": "1.0.0", "ddlplan": "0.1.0"})
    assert tuned.data("plans", "show", number)["stale"] is True
    error = tuned.launch(steady, "--plan", str(number), "--json").refusal(5)
    assert "torch 1.0.0" in error
    assert "--allow-stale" in error
    arguments = ("--plan", str(number), "--allow-stale", "--dry-run")
    assert tuned.launch(steady, *arguments).code == 0
    number = import_for(fingerprint="sha256:0")
    ended = tuned.launch(steady, "--plan", str(number))
    assert (ended.code, ended.out) == (5, "")
    assert tuned.launch(steady, "--dry-run").out.count("plan 1,") == 1


@dataclass(frozen=True)
class ChangedLaunch:
    """A launch of a stale plan with another batch, whose losses are no numbers, and its dry run."""

    folder: Path
    plan: dict[str, Any]
    shown: Any
    ended: Any


@pytest.fixture(scope="module")
def changed(tuned_folder, command_line, tmp_path_factory):
    command = command_line(tmp_path_factory.mktemp("changed"))
    shutil.copy(tuned_folder / "planner.db", command.folder)
    plan = command.data("plans", "export", 1)
    plan |= {"use_case": f"{CASES}:NotANumber", "use_case_digest": None}
    plan["software"] = {"python": "3.11.7", "torch": "1.0.0", "ddlplan": "0.1.0"}
    (command.folder / "plan.json").write_text(json.dumps(plan))
    assert command.data("plans", "import", "plan.json")["id"] == 2
    (command.folder / "hosts").write_text("[::1]\n")
    (command.folder / "runs" / "4").mkdir(parents=True)
    batch = str(2 * plan["node_batch"] + 1)
    arguments = ("--hosts", "hosts", "--plan", "2", "--allow-stale", "--effective-batch", batch)
    arguments += ("--allow-nan", "--no-noise-scale")
    shown = command.launch(plan["use_case"], *arguments, "--dry-run", OMP_PROC_BIND="true")
    assert shown.code == 0, shown.err
    process = command.start_launch(plan["use_case"], *arguments, "--json")
    line = shown.out.splitlines()[0]
    command.wait_until(lambda: command.processes(" ".join(shlex.split(line)[1:])), line)
    ended = command.end(process)
    assert ended.code == 0, ended.err
    return ChangedLaunch(command.folder, plan, shown, ended)


def test_dry_run_shows_the_command_that_would_run(changed):
    assert "without anything of MPI's, OMP_PROC_BIND" in changed.shown.out
    command = changed.shown.out.splitlines()[0]
    assert "--host localhost:1" in command
    assert command.endswith(str(changed.folder.resolve() / "runs" / "5" / "job.json"))
    assert (changed.folder / "runs" / "5" / "__1-worker0.log").exists()


def test_answer_tells_that_the_plan_is_stale_and_what_was_changed_in_it(changed):
    """An effective batch adds up passes of the plan's own batch."""
    assert "plan 2 (stale, made with torch 1.0.0" in changed.ended.err
    answer = changed.ended.document["data"]
    used, plan = answer["plan"], changed.plan
    assert (used["id"], used["stale"]) == (2, True)
    assert used["node_batch"] == 2 * plan["node_batch"] + 1
    assert used["micro_batches"] == 3 * plan["micro_batches"]
    assert answer["expected_throughput_samples_per_s"] is None


def test_losses_that_are_no_numbers_are_null_in_json(changed):
    (epoch,) = changed.ended.document["data"]["epochs"]
    assert epoch["train_loss"] is None
    assert epoch["noise_obstacle"] is None  # nothing was to be measured
    metrics = (changed.folder / "runs" / "5" / "metrics.jsonl").read_text()
    assert json.loads(metrics)["train_loss"] is None
    warnings = " ".join(changed.ended.document["warnings"])  # on a busy machine it is slow as well
    assert "loss of epoch 1 is no number (NaN or infinite): lower the learning rate" in warnings


def test_global_batch_is_that_of_a_step(tuned, steady):
    ended = tuned.launch(steady, "--global-batch", "12", "--dry-run", "--json")
    (node,) = ended.document["data"]["nodes"]
    assert node["plan"]["node_batch"] == 12
    refused = tuned.launch(steady, "--effective-batch", "64", "--global-batch", "64")
    assert "exclude each other" in refused.refusal()


def test_best_plan_is_the_one_of_this_machine_as_it_is_now(import_for, tuned, steady):
    """The store had seen another machine of that name last, as clones of containers are."""
    import_for(fingerprint="sha256:0")
    connection = sqlite3.connect(tuned.folder / "planner.db")
    connection.execute(
        "INSERT INTO nodes (name, fingerprint, first_seen, last_seen) "
        "SELECT name, 'sha256:0', first_seen, '2099-01-01T00:00:00+00:00' FROM nodes"
    )
    connection.commit()
    connection.close()
    best = tuned.data("plans", "best", "--use-case", steady)
    assert (best["id"], best["stale"]) == (1, False)
    assert "plan 1," in tuned.launch(steady, "--dry-run").out
    assert tuned.data("plans", "best", "--use-case", steady, "--node", best["node"])["id"] == 2


def test_stored_plan_that_would_train_wrongly_is_refused(tuned, steady):
    with Store.open(str(tuned.folder / "planner.db")) as store:
        stored = store.plans.get(1)
        plan = Plan(strategy="sequential", processes=2, node_batch=4)
        number = store.plans.save(replace(stored, plan=plan))
    error = tuned.launch(steady, "--plan", str(number), "--json").refusal()
    assert "strategy=sequential and processes=2: use processes=1" in error


def test_plan_of_another_use_case_is_refused(import_for, tuned, cases):
    import_for("Dies")
    error = tuned.launch(f"{cases}:Dies", "--plan", "1").refusal()
    assert "plan 1 is for " in error
    assert "choose another" in error


def metrics_of(command):
    """Give the metrics of the first training, a line for each epoch; none before its first one."""
    file = command.folder / "runs" / "1" / "metrics.jsonl"
    return file.read_text().splitlines() if file.exists() else []


@pytest.mark.long
def test_launch_under_nohup_outlives_its_terminal_and_tells_that_someone_else_has_ended_mpirun(
    tuned, steady
):
    """The story: nohup ignores the signal for the command, which took it for itself again. And
    "mpirun ended with exit code 0, as where a login to a host breaks" was not true, and counted as
    an accident to restart after."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # what a child inherits
    try:
        process = tuned.start_launch(steady, "--epochs", "100000")
    finally:
        signal.signal(signal.SIGHUP, before)
    tuned.wait_until(lambda: metrics_of(tuned), "the first epoch")
    process.send_signal(signal.SIGHUP)
    epochs = len(metrics_of(tuned))
    tuned.wait_until(
        lambda: len(metrics_of(tuned)) > epochs + 5 or process.poll() is not None, "it goes on"
    )
    assert process.poll() is None, tuned.end(process).err
    (pid,) = (p for p, line in tuned.processes("prterun").items() if "prterun" in line.split()[0])
    os.kill(pid, signal.SIGUSR2)
    ended = tuned.end(process)
    assert ended.code == 128 + signal.SIGUSR2
    assert ended.err.splitlines()[-1] == "ended by SIGUSR2"
    assert "the weights of the last step are in runs/1/weights.safetensors; " in ended.err
    assert not ended.errors


def find(command, program):
    """Find a process by its program; mpirun, which becomes prterun, names the rank's as well."""
    found = command.processes(program)
    return [pid for pid, line in found.items() if program in line.partition(" --host")[0]]


@pytest.mark.parametrize("victim", ["prterun", "launch.rank", "fork_server"])
@pytest.mark.long
def test_whichever_process_is_killed_none_is_left(tuned, steady, victim):
    process = tuned.start_launch(steady, "--epochs", "100000")
    metrics = tuned.folder / "runs" / "1" / "metrics.jsonl"
    tuned.wait_until(metrics.exists, "the first epoch")
    os.kill(min(find(tuned, victim)), signal.SIGKILL)
    assert "Traceback (most" not in tuned.end(process).refusal(1)
    tuned.wait_until_all_ended()
