"""`probe --data` and what `launch` and its dry run make of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.store import Store
from probes.hardware import DataSpeed, LocalCopy, ReadRate
from probes.node import probe


@pytest.fixture
def data(tuned):
    """A file for each of the samples: 32 to train on, 4 to validate."""
    folder = tuned.folder.resolve() / "data"
    folder.mkdir()
    for number in range(36):
        (folder / f"{number}.bin").write_bytes(bytes(1000))
    return folder


def rate(files_per_s):
    return (ReadRate(readers=1, files_per_s=files_per_s, bytes_per_s=1000 * files_per_s),)


def test_dry_run_says_what_epochs_take_and_whether_to_copy_the_data(tuned, steady, data):
    measured = DataSpeed(
        path=str(data),
        file_system="nfs4",
        is_network=True,
        num_files=36,
        num_bytes=36_000,
        cold=rate(4),
        warm=rate(4),  # nothing stays in memory
        local=LocalCopy(
            folder="/", file_system="ext4", copy_files_per_s=4, cold=rate(1e4), warm=rate(1e4)
        ),
    )
    with Store.open(str(tuned.folder / "planner.db")) as store:
        store.machines.save_probe(replace(probe(quick=True), data=(measured,)))
    arguments = (steady, "--data", "data", "--dry-run", "--epochs", 3)
    found = tuned.launch(*arguments, "--json").document["data"]["input"]
    assert (found["path"], found["file_system"]) == (str(data), "nfs4")
    assert found["copy_s"] == pytest.approx(9.0)
    assert found["copy_pays_after_epochs"] == 2
    ended = tuned.launch(*arguments)
    assert f"data: {data} on nfs4, " in ended.err
    assert "local disk takes 9.0s and has paid after 2 epochs: copy them\n" in ended.err


@pytest.mark.long
def test_probe_measures_how_fast_the_data_are_read(tuned, data):
    ended = tuned.run("probe", "--data", "data")
    assert ended.code == 0, ended.err
    assert f"data         {data}" in ended.out
    assert "  files      36, 35.2 KiB" in ended.out
    assert "  not cached " in ended.out
    (node,) = tuned.data("probe", "--quick")
    assert node["data"] == []
    assert [one["path"] for one in tuned.data("probe", "--data", "data")[0]["data"]] == [str(data)]
