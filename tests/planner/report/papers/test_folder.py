"""A report's folder: its own files are replaced, nobody else's, and none is ever half written."""

from __future__ import annotations

import stat

import pytest

from launch.system.durable_files import write_in_place
from planner.errors import UsageError
from planner.report.papers.folder import ReportFolder

FIRST = {"report.md": "one", "table-a.csv": "a,b\n"}
SECOND = {"report.md": "two"}


@pytest.fixture
def folder(tmp_path):
    return ReportFolder(tmp_path / "out" / "report")


def shown(folder):
    return {
        file.name: file.read_text()
        for file in folder.path.iterdir()
        if not file.name.startswith(".")
    }


def test_report_is_written_and_replaced_as_a_whole(folder):
    assert [file.name for file in folder.write(FIRST)] == list(FIRST)
    assert shown(folder) == FIRST
    folder.write(SECOND)
    assert shown(folder) == SECOND
    assert {stat.S_IMODE(file.stat().st_mode) for file in folder.path.iterdir()} == {0o600}


def test_file_of_somebody_else_stays_and_nothing_is_written(folder):
    folder.path.mkdir(parents=True)
    (folder.path / "report.md").write_text("mine")
    with pytest.raises(UsageError, match=r"report\.md is there"):
        folder.write(FIRST)
    assert shown(folder) == {"report.md": "mine"}


def test_report_that_its_user_has_changed_stays(folder):
    folder.write(FIRST)
    (folder.path / "report.md").write_text("one, and my remarks")
    with pytest.raises(UsageError, match="not as a report has written it"):
        folder.write(SECOND)
    assert shown(folder)["report.md"] == "one, and my remarks"


def test_changed_file_that_is_no_longer_part_of_the_report_stays(folder):
    folder.write(FIRST)
    (folder.path / "table-a.csv").write_text("my own\n")
    folder.write(SECOND)
    assert shown(folder) == {**SECOND, "table-a.csv": "my own\n"}


def test_link_is_never_followed(folder, tmp_path):
    folder.write(FIRST)
    target = tmp_path / "precious"
    target.write_text("one")
    (folder.path / "report.md").unlink()
    (folder.path / "report.md").symlink_to(target)
    with pytest.raises(UsageError):
        folder.write(SECOND)
    assert target.read_text() == "one"


def test_cut_between_files_leaves_a_report_that_can_be_replaced(folder, monkeypatch):
    folder.write(FIRST)

    def fail(path, content):
        if path.name == "table-a.csv":
            raise OSError(28, "No space left on device")
        write_in_place(path, content)

    with monkeypatch.context() as patched:
        patched.setattr("planner.report.papers.folder.write_in_place", fail)
        with pytest.raises(UsageError, match="no space left"):
            folder.write({"report.md": "three", "table-a.csv": "c\n"})
    assert shown(folder) == {"report.md": "three", "table-a.csv": "a,b\n"}
    folder.write(SECOND)
    assert shown(folder) == SECOND


def test_folder_is_not_made_before_there_is_a_report(folder, tmp_path):
    """The story: where what was to be measured was refused, an empty folder stayed."""
    folder.check(FIRST)
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "out").write_text("")
    with pytest.raises(UsageError, match="--out"):
        ReportFolder(tmp_path / "out").check(FIRST)


def test_list_that_names_other_folders_removes_nothing(folder, tmp_path):
    outside = tmp_path / "out" / "outside"
    folder.write(FIRST)
    outside.write_text("x")
    (folder.path / ".ddlplan-report.json").write_text('{"../outside": ["sha256:x"]}')
    with pytest.raises(UsageError):
        folder.write(SECOND)
    assert outside.read_text() == "x"
