"""`ddlplan launch --checkpoint`: a training is kept, killed, and gone on with."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file


def weights_of(command, run: int) -> dict[str, torch.Tensor]:
    return load_file(command.folder / "runs" / str(run) / "weights.safetensors")


def kept_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("step-*"))


@pytest.mark.long
def test_a_finished_training_goes_on_to_more_epochs_as_if_it_had_not_ended(tuned, steady):
    kept = tuned.launch(steady, "--epochs", "2", "--seed", "5", "--checkpoint", "kept", "--json")
    assert kept.code == 0, kept.err
    (name,) = kept_in(tuned.folder / "kept")
    assert kept.document["data"]["checkpoint"] == str(tuned.folder.resolve() / "kept" / name)
    whole = tuned.launch(steady, "--epochs", "3", "--seed", "5")
    assert whole.code == 0, whole.err
    more = tuned.launch(steady, "--epochs", "3", "--checkpoint", "kept", "--resume")
    assert more.code == 0, more.err
    assert more.out.startswith("epoch 3/3  loss ")
    assert f"checkpoint kept/{kept_in(tuned.folder / 'kept')[-1]}" in more.out
    again = tuned.launch(steady, "--epochs", "3", "--checkpoint", "kept", "--resume")
    assert again.code == 0, again.err
    assert again.out.startswith("weights    runs/4/weights.safetensors")
    theirs = weights_of(tuned, 2)
    for run in (3, 4):
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
