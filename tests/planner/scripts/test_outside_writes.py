"""Places outside of the folder where trials may write: named before a search, once."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from launch.reports import Report, Warned, Working
from launch.scripts.program import Program
from launch.workload import Workload
from planner.api.scripts.tuning import TunedScript, tune_script
from planner.scripts.outside_writes import warn_of_outside_writes
from planner.tuning.tune_request import TuneRequest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "training"
    (folder / "deep").mkdir(parents=True)
    (folder / "train.py").touch()
    (tmp_path / "out").mkdir()
    (tmp_path / "data.csv").touch()
    (tmp_path / "train.py").touch()
    (tmp_path / "tool").touch(mode=0o755)
    return folder


def test_links_to_folders_outside_are_named_up_to_three(tmp_path: Path, folder: Path):
    inner = {"gone": tmp_path / "gone", "near": folder / "deep", "file": tmp_path / "data.csv"}
    for name, target in inner.items():
        (folder / name).symlink_to(target)
    assert warn_of_outside_writes(["python"], folder) is None
    for number in range(5):
        (folder / "deep" / f"out{number}").symlink_to("../../out")
    said = warn_of_outside_writes(["python"], folder)
    assert said is not None
    assert f"links deep/out0 -> {tmp_path / 'out'}, deep/out1 -> " in said
    assert "deep/out3" not in said
    assert said.endswith(" and 2 more: what the script writes there is not protected")


@pytest.mark.parametrize(
    ("word", "is_named"),
    [
        ("../out", True),
        ("{}/out", True),
        ("--out={}/out/new/run", True),
        ("{}/data.csv", True),
        ("{}/tool", False),
        ("../train.py", False),
        ("deep/../run", False),
        ("{}/training/run", False),
        ("--out=run", False),
        ("http://host/x", False),
        ("/dev/null", False),
    ],
)
def test_words_that_lead_out_to_where_a_trial_may_write_are_named(
    tmp_path: Path, folder: Path, word: str, is_named: bool
):
    word = word.format(tmp_path)
    said = warn_of_outside_writes([f"{tmp_path}/out/python", "train.py", word, word], folder)
    assert (said is not None) == is_named
    if said is not None:
        assert f"by words of the command {word}: what" in said


class BegunError(Exception):
    pass


@pytest.mark.parametrize("in_place", [False, True])
def test_tune_warns_before_it_starts_the_script_unless_it_runs_in_place(
    folder: Path, monkeypatch: pytest.MonkeyPatch, in_place: bool
):
    """Trials filled the folder that a link of the user's led to, without a word."""
    monkeypatch.chdir(folder)
    (folder / "out").symlink_to("../out")
    warned: list[str] = []

    def end_at_start(report: Report, _host: str | None = None, /) -> None:
        if isinstance(report, Warned):
            warned.append(report.message)
        if isinstance(report, Working):
            raise BegunError

    program = Program.parse([sys.executable, "train.py"], cores=2)
    request = TuneRequest(workload=Workload(use_case="script:train.py"), budget_s=60.0)
    with pytest.raises(BegunError):
        tune_script(
            TunedScript(program=program, in_place=in_place),
            request,
            db=str(folder / "planner.db"),
            listener=end_at_start,
        )
    links = [message for message in warned if "by links out -> " in message]
    assert len(links) == (0 if in_place else 1)
