"""Event files hold a training's epochs as TensorBoard itself reads them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tensorboard.backend.event_processing import event_accumulator as reading
from training_samples import EPOCH
from worth_cases import FACTS

from launch.noise_scale.estimate import NoiseScale
from launch.packages.install_command import install_command
from launch.reports import Described
from planner.errors import UsageError
from planner.jobs.training import RunBegun
from planner.trainings import event_files
from planner.trainings.event_files import EventFile, charting, check_event_folder


def epoch(number, **changes):
    losses = {"train_loss": 1.0 / number, "validation_loss": 2.0 / number}
    known = {**losses, "metrics": {"accuracy": 0.25 * number}, "learning_rates": (0.1 / number,)}
    return replace(EPOCH, epoch=number, **(known | changes))


def scalars(folder):
    """Read what TensorBoard shows, as pairs of epoch and value."""
    accumulator = reading.EventAccumulator(str(folder)).Reload()
    return {
        tag: [(event.step, round(event.value, 6)) for event in accumulator.Scalars(tag)]
        for tag in accumulator.Tags()["scalars"]
    }


def test_epochs_are_read_by_tensorboard_while_the_training_goes_on(tmp_path):
    warnings = []
    with EventFile(tmp_path / "events", "7", warnings.append) as events:
        events.add(epoch(1))
        events.add(epoch(2))
        assert scalars(tmp_path / "events" / "run-7") == {
            "loss/training": [(1, 1.0), (2, 0.5)],
            "loss/validation": [(1, 2.0), (2, 1.0)],
            "metrics/accuracy": [(1, 0.25), (2, 0.5)],
            "samples_per_s": [(1, 20.0), (2, 20.0)],
            "learning_rate": [(1, 0.1), (2, 0.05)],
        }
    assert warnings == []
    (file,) = (tmp_path / "events" / "run-7").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600


def test_what_an_epoch_lacks_is_left_out_and_groups_have_numbers(tmp_path):
    with EventFile(tmp_path, "1", print) as events:
        events.add(epoch(1, samples=0, metrics={}))
        events.add(epoch(2, validation_loss=None, learning_rates=(0.5, 0.25)))
    found = scalars(tmp_path / "run-1")
    assert found["loss/training"] == [(2, 0.5)]
    assert found["loss/validation"] == [(1, 2.0)]
    assert found["learning_rate/group_1"] == [(2, 0.25)]


def test_noise_scale_is_there_where_it_is_clear(tmp_path):
    noise = NoiseScale(scale=312.0, low=250.0, high=400.0, variance=1.0, square=1.0, measurements=9)
    unclear = replace(noise, scale=None, low=None, high=None)
    with EventFile(tmp_path, "1", print) as events:
        for number, found in enumerate((None, unclear, noise), start=1):
            events.add(epoch(number, noise=found))
    assert scalars(tmp_path / "run-1")["noise_scale"] == [(3, 312.0)]


def test_made_up_data_are_a_text_in_tensorboard(tmp_path):
    facts = replace(FACTS, is_generated=True)
    with charting(tmp_path, lambda *_: None) as listener:
        listener(RunBegun(run_directory="/runs/7"))
        for host in ("one", "two"):
            listener(Described(facts=facts), host)
    (text,) = reading.EventAccumulator(str(tmp_path / "run-7")).Reload().Tensors("data")
    assert text.tensor_proto.string_val[0].startswith(b"generated: ")
    with charting(tmp_path, lambda *_: None) as listener:
        listener(RunBegun(run_directory="/runs/8"))
        listener(Described(facts=FACTS))
    assert reading.EventAccumulator(str(tmp_path / "run-8")).Reload().Tags()["tensors"] == []


def test_each_training_has_a_folder_of_its_own(tmp_path):
    for _ in range(2):
        with EventFile(tmp_path, "3", print) as events:
            events.add(epoch(1))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run-3", "run-3-2"]


def test_full_disk_is_one_warning_and_no_end(tmp_path):
    warnings = []
    with EventFile(tmp_path, "1", warnings.append) as events:
        events._writer._writer.close()
        with Path("/dev/full").open("wb", buffering=0) as full:
            events._writer._writer = full
            events.add(epoch(1))
            events.add(epoch(2))
    (warning,) = warnings
    assert warning == "event files of TensorBoard are not written: no space left on device"


def test_link_to_nothing_in_the_place_of_the_folder_is_one_warning_and_no_end(tmp_path):
    """The story: each name was taken for one that is there already, and the next tried for ever."""
    folder = tmp_path / "events"
    folder.symlink_to("gone")
    warnings = []
    with EventFile(folder, "7", warnings.append) as events:
        events.add(epoch(1))
    (warning,) = warnings
    told = f"{folder}: no such file or directory"
    assert warning == f"event files of TensorBoard are not written: {told}"


def test_folder_is_not_made_before_the_training(tmp_path):
    """Where there was no plan to train with, an empty folder stayed."""
    check_event_folder(tmp_path / "events")
    assert list(tmp_path.iterdir()) == []


def test_missing_library_and_folder_are_one_line(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError) as caught:
        check_event_folder(tmp_path / "file")
    assert str(caught.value) == f"--tensorboard {tmp_path}/file: file exists: name another folder"
    monkeypatch.setattr(event_files, "find_spec", lambda name: None)
    with pytest.raises(UsageError) as caught:
        check_event_folder(tmp_path)
    installing = install_command("ddlplan[tensorboard]")
    assert str(caught.value) == f"no tensorboard installed: {installing}"
