"""`ddlplan runs`: trainings as they were launched, with what they used, running ones included."""

from __future__ import annotations

import json
import platform

import pytest

from planner.store import Store


def test_training_is_listed_and_shown_with_its_epochs_and_what_it_used(
    trained, trained_folder, cases
):
    (listed,) = trained.data("runs", "list")
    shown = trained.data("runs", "show", 1)
    assert listed == shown
    assert (shown["state"], shown["error"]) == ("done", None)
    assert (shown["use_case"], shown["epochs"]) == (f"{cases}:Steady", 2)
    assert [epoch["epoch"] for epoch in shown["epochs_done"]] == [1, 2]
    metrics = (trained_folder / "runs" / "1" / "metrics.jsonl").read_text().splitlines()
    marked = [epoch | {"is_generated": False} for epoch in shown["epochs_done"]]
    assert marked == [json.loads(line) for line in metrics]
    assert (
        shown["steps"]
        == sum(epoch["samples"] for epoch in shown["epochs_done"])
        // (shown["hosts"][0]["plan"]["node_batch"])
    )
    (host,) = shown["hosts"]
    assert (host["host"], host["plan_id"]) == ("localhost", 1)
    assert host["machine"] == platform.node()
    assert shown["expected_samples_per_s"] == host["plan_samples_per_s"]
    assert shown["run_directory"] == str(trained_folder.resolve() / "runs" / "1")
    assert shown["weights"].endswith("runs/1/weights.safetensors")

    with Store.open(str(trained_folder / "planner.db")) as store:
        usage = store.trainings.usage(1)["localhost"]
    assert usage.time_s
    assert max(usage.memory_bytes.maximum) > 2**20
    assert max(usage.processes.maximum) >= 2  # two epochs may lie between two samples
    assert all(loss > 0 for loss in usage.loss.mean if loss is not None)
    assert any(usage.samples_per_s.mean)
    assert usage.sync_wait is None

    drawn = trained.run("runs", "show", 1, "--plot", "one.svg")
    assert drawn.code == 0, drawn.err
    assert (trained.folder / "one.svg").read_text().startswith("<svg xmlns=")
    assert "wrote one.svg" in drawn.err
    compared = trained.data("runs", "compare", 1, 1, "--plot", "two.svg")
    assert compared["differences"] == []
    assert compared["verdict"].startswith("no difference of speed shown")
    assert trained.run("runs", "compare", 1, 1, "--csv").out.startswith(
        "field,differs,first,second"
    )
    assert trained.run("runs", "list", "--csv").out.splitlines()[1].startswith("1,")
    assert trained.run("runs", "show", 1, "--plot", "one.png").code == 2
    too_long = trained.run("runs", "show", 1, "--plot", f"{'x' * 300}.svg")  # it was a bug
    assert "name another file" in too_long.refusal()
    for words in (("show", 1, "--plot"), ("show", "--plot", 1, "--json")):
        bare = trained.run("runs", *words)
        assert bare.code == 0, bare.err
        assert "wrote run-1.svg" in bare.err
    assert (trained.folder / "run-1.svg").read_text().startswith("<svg xmlns=")
    assert "wrote run-1-run-1.svg" in trained.run("runs", "compare", 1, 1, "--plot").err

    text = trained.run("runs", "show", 1).out
    assert "state          done" in text
    assert f"weights        {shown['weights']}" in text
    assert "INPUT WAIT" in text
    assert "SYNC WAIT" not in text


@pytest.mark.long
def test_each_restart_after_an_accident_is_a_training_of_its_own(import_for, tuned, cases):
    import_for("DiesLater")
    keep = ("--checkpoint", "kept", "--checkpoint-every", "1s", "--max-restarts", "1")
    assert tuned.launch(f"{cases}:DiesLater", "--epochs", "99", *keep).code == 1
    second, first = tuned.data("runs", "list")
    assert (first["state"], second["state"]) == ("failed", "failed")
    assert "killed by signal 9 (SIGKILL)" in first["error"]
    assert "killed by signal 9 (SIGKILL)" in tuned.run("runs", "list").out
    assert tuned.data("runs", "list", "--state", "done") == []
    assert first["run_directory"].endswith("runs/1")
    assert second["run_directory"].endswith("runs/2")


def test_table_fits_a_narrow_terminal(trained_folder):
    with Store.open(str(trained_folder / "planner.db")) as store:
        (record,) = store.trainings.find()
    from planner.report.runs import run_text, runs_table
    from planner.report.table import Terminal

    text = runs_table([record], Terminal(width=80)) + run_text(record, {}, Terminal(width=80))
    assert max(map(len, text.splitlines())) <= 80


def test_no_database_and_no_training_are_told(ddlplan, tuned):
    missing = ddlplan.run("runs", "list", "--db", "elsewhere.db", "--json")
    assert (missing.code, missing.document["data"]) == (0, [])
    assert "no database elsewhere.db" in missing.document["warnings"][0]
    none = tuned.run("runs", "list")
    assert (none.code, none.out) == (0, "")
    assert "no trainings: ddlplan launch makes one" in none.err
    error = tuned.run("runs", "show", 7).refusal(3)
    assert error == "error: no training 7: ddlplan runs list shows which there are"
    assert tuned.run("runs", "list", "--state", "odd").code == 2
    # It named the file of runs show.
    assert "run-ID-run-ID.svg" in tuned.run("runs", "compare", "--help").out
