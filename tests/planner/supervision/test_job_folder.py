"""The folder of a job is its user's alone, belongs to one job, and is read in parts."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from training_samples import JOB

from planner.records.job_record import JobState
from planner.supervision.job_folder import ExitRecord, JobFolder

NOW = datetime(2026, 11, 20, 12, 30, 15, 250, tzinfo=UTC)
RECORD = replace(JOB, id=7, created_at=NOW)
EXIT = ExitRecord(state=JobState.FAILED, exit_code=3, error="no plan", ended_at=NOW)


@pytest.fixture
def folder(tmp_path):
    return JobFolder.create(RECORD, tmp_path / "jobs")


def stored(folder, **changes):
    return replace(RECORD, folder=str(folder.path), **changes)


def test_nobody_else_can_read_it(folder):
    folder.write_exit(EXIT)
    assert folder.path.stat().st_mode & 0o777 == folder.path.parent.stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in folder.path.iterdir()} == {0o600}


def test_its_name_and_that_of_its_exit_record_are_on_the_disk(tmp_path, monkeypatch):
    """The story: the content of the record was, and after a loss of power not the folder of it."""
    synced, sync = set(), os.fsync

    def record(file: int) -> None:
        synced.add(Path(f"/proc/self/fd/{file}").readlink())
        sync(file)

    monkeypatch.setattr(os, "fsync", record)
    (tmp_path / "jobs").mkdir()
    folder = JobFolder.create(RECORD, tmp_path / "jobs")
    assert tmp_path / "jobs" in synced
    synced.clear()
    folder.write_exit(EXIT)
    assert folder.path in synced


def test_jobs_of_two_databases_with_one_number_have_folders_of_their_own(folder):
    other = JobFolder.create(RECORD, folder.path.parent)
    assert (folder.path.name, other.path.name) == ("7", "7-2")


def test_folder_of_another_job_with_the_same_path_is_not_taken_for_its_own(folder):
    assert JobFolder.find(stored(folder)) == folder
    assert JobFolder.find(stored(folder, machine="another")) is None
    assert JobFolder.find(stored(folder, created_at=NOW.replace(year=2025))) is None
    assert JobFolder.find(replace(RECORD, folder="/nowhere/7")) is None
    assert JobFolder.find(RECORD) is None


def test_pipe_in_place_of_its_files_is_not_waited_for(folder):
    """The story: rows of a database that others write to name the folder that is looked into."""
    (folder.path / "job.json").unlink()
    os.mkfifo(folder.path / "job.json")
    assert JobFolder.find(stored(folder)) is None
    assert JobFolder.find(replace(RECORD, folder="a\0b")) is None


def test_exit_record_is_there_whole_or_not_at_all(folder):
    assert folder.read_exit() is None
    folder.write_exit(EXIT)
    assert folder.read_exit() == EXIT
    folder.exit_record.write_bytes(folder.exit_record.read_bytes()[:30])
    assert folder.read_exit() is None
    (folder.path / f".exit.json.{os.getpid()}").write_bytes(b"left by a full disk")
    folder.write_exit(EXIT)
    assert folder.read_exit() == EXIT


def test_log_is_read_in_parts_that_cut_no_character(folder):
    text = "grün ✓ 🔥\n" * 9
    folder.log.write_text(text)
    found, offset = "", 0
    while (part := folder.read_log(offset, 7)).text:
        assert part.offset == offset
        assert part.size == len(text.encode())
        found, offset = found + part.text, part.next_offset
    assert found == text


def test_end_of_a_log_is_read_by_an_offset_from_there(folder):
    folder.log.write_text("first\nlast\n")
    assert folder.read_log(-5).text == "last\n"
    assert folder.read_log(-500).text == "first\nlast\n"
    assert folder.read_log(500).text == ""


def test_bytes_that_are_no_text_are_shown_as_such(folder):
    folder.log.write_bytes(b"\xff\xfe and \xc3")
    assert folder.read_log().text == "\ufffd\ufffd and "
    assert folder.read_log(7).text == "\ufffd"


def test_log_that_was_removed_is_empty(folder):
    folder.log.unlink()
    assert folder.read_log() == folder.read_log(9)
    assert folder.read_log().size == 0
