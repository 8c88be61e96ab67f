"""`ddlplan launch --checkpoint`: a training is kept, killed, and gone on with."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

STEADY = f"{Path(__file__).parents[1] / 'steady_cases.py'}:Steady"


def weights_of(command, run: int) -> dict[str, torch.Tensor]:
    return load_file(command.folder / "runs" / str(run) / "weights.safetensors")


def kept_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("step-*"))


@pytest.fixture(scope="module")
def kept_training(tuned_folder, command_line, tmp_path_factory) -> tuple[Path, dict[str, Any]]:
    """A folder in which two epochs have left a checkpoint, and what their launch answered."""
    command = command_line(tmp_path_factory.mktemp("kept"))
    shutil.copy(tuned_folder / "planner.db", command.folder)
    words = ("--epochs", "2", "--seed", "5", "--checkpoint", "kept", "--json")
    ended = command.launch(STEADY, *words)
    assert ended.code == 0, ended.err
    return command.folder, ended.document["data"]


@pytest.mark.long
def test_a_finished_training_goes_on_to_more_epochs_as_if_it_had_not_ended(
    tuned, steady, kept_training
):
    folder, answer = kept_training
    (name,) = kept_in(folder / "kept")
    assert answer["checkpoint"] == str(folder.resolve() / "kept" / name)
    shutil.copytree(folder / "kept", tuned.folder / "kept")
    whole = tuned.launch(steady, "--epochs", "3", "--seed", "5")
    assert whole.code == 0, whole.err
    more = tuned.launch(steady, "--epochs", "3", "--checkpoint", "kept", "--resume")
    assert more.code == 0, more.err
    assert more.out.startswith("epoch 3/3  loss ")
    assert f"checkpoint kept/{kept_in(tuned.folder / 'kept')[-1]}" in more.out
    again = tuned.launch(steady, "--epochs", "3", "--checkpoint", "kept", "--resume")
    assert again.code == 0, again.err
    assert again.out.startswith("weights    runs/3/weights.safetensors")
    theirs = weights_of(tuned, 1)
    for run in (2, 3):
        ours = weights_of(tuned, run)
        assert all(torch.equal(ours[key], theirs[key]) for key in theirs)


@pytest.mark.long
def test_a_killed_training_is_interrupted_and_goes_on_from_its_last_checkpoint(tuned, steady):
    keep = ("--checkpoint", "kept", "--checkpoint-every", "1s")
    process = tuned.start_launch(steady, "--epochs", "100000", *keep)
    kept = tuned.folder / "kept"
    tuned.wait_until(lambda: kept_in(kept), "launch")
    process.send_signal(signal.SIGKILL)
    tuned.end(process)
    tuned.wait_until_all_ended()
    assert tuned.data("runs", "list", "--state", "running") == []
    (over,) = tuned.data("runs", "list", "--state", "interrupted")
    assert "left no record" in over["error"]
    newest = kept / kept_in(kept)[-1]
    epoch = json.loads((newest / "manifest.json").read_bytes())["epoch"]
    more = tuned.launch(steady, "--epochs", epoch + 1, *keep, "--resume", "--json")
    assert more.code == 0, more.err
    (done,) = more.document["data"]["epochs"]
    assert done["epoch"] == epoch + 1


def test_a_training_leaves_a_checkpoint_when_it_is_asked_for_one_and_when_to_end(tuned, steady):
    process = tuned.start_launch(steady, "--epochs", "100000", "--checkpoint", "kept")
    metrics = tuned.folder / "runs" / "1" / "metrics.jsonl"
    tuned.wait_until(metrics.exists, "launch")
    process.send_signal(signal.SIGUSR1)
    tuned.wait_until(lambda: kept_in(tuned.folder / "kept"), "a checkpoint")
    epochs = len(metrics.read_text().splitlines())
    tuned.wait_until(lambda: len(metrics.read_text().splitlines()) > epochs, "it goes on")
    process.send_signal(signal.SIGTERM)
    ended = tuned.end(process)
    assert ended.code == 128 + signal.SIGTERM, ended.err
    tuned.wait_until_all_ended()
    _, name = kept_in(tuned.folder / "kept")
    manifest = json.loads((tuned.folder / "kept" / name / "manifest.json").read_bytes())
    assert manifest["epoch"] >= len(metrics.read_text().splitlines()) - 1
    assert manifest["step"] > 0
    assert f"the last checkpoint is kept/{name}: go on with --checkpoint kept --resume" in ended.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--resume"], "--resume and no --checkpoint: name the folder"),
        (["--checkpoint", "none", "--resume"], "no checkpoint in none: leave --resume out"),
        (["--checkpoint", "kept", "--checkpoint-every", "soon"], "'soon' is no duration"),
        (["--checkpoint", "planner.db"], "listed: not a directory: name another folder"),
        (["--checkpoint", ""], "it is empty: name a file or a folder"),
    ],
)
def test_checkpoints_that_cannot_be_are_one_line(arguments, message, tuned, steady):
    before = tuned.listing()
    assert message in tuned.launch(steady, *arguments).refusal()
    assert tuned.listing() == before


@pytest.mark.long
def test_a_training_that_was_kept_is_not_lost_to_another_one(
    tuned, steady, cases, import_for, kept_training
):
    shutil.copytree(kept_training[0] / "kept", tuned.folder / "kept")
    import_for("NotANumber")
    expected = {
        (steady,): "holds checkpoints of a training already, the newest is step-",
        (f"{cases}:NotANumber", "--resume"): f"is one of {steady}, not of ",
    }
    for arguments, message in expected.items():
        assert message in tuned.launch(*arguments, "--checkpoint", "kept").refusal()
    (name,) = kept_in(tuned.folder / "kept")
    file = tuned.folder / "kept" / name / "weights-0.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    refused = tuned.launch(steady, "--checkpoint", "kept", "--resume", "--epochs", "2")
    assert "no usable checkpoint in kept: " in refused.refusal()
