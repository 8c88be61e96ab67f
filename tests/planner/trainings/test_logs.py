"""Logs of a training: those that it has here, and nothing else that could be asked for."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
from training_samples import BEGUN, HOST

from launch.system.log_part import MOST_LOG_BYTES, read_log_part
from launch.system.process_identity import ProcessIdentity
from planner.errors import UsageError
from planner.trainings.logs import list_logs, read_log


@pytest.fixture
def record(tmp_path):
    for name, text in (
        ("mpirun.log", "it began\n"),
        ("node1-worker0.log", "first\n"),
        ("node1-worker10.log", "eleventh\n"),
        ("node1-worker9.log", "tenth\n"),
        ("node2-worker0.log", "another\n"),
        ("node3-worker0.log", "of no host of this training\n"),
        ("job.json", "{}"),
    ):
        (tmp_path / name).write_text(text)
    return replace(
        BEGUN,
        id=3,
        hosts=tuple(replace(HOST, host=name) for name in ("node1", "node2")),
        machine=os.uname().nodename,
        run_directory=str(tmp_path),
        process=ProcessIdentity.of(),
    )


def test_logs_are_listed_by_host_and_worker(record):
    assert [(log.name, log.host, log.size) for log in list_logs(record)] == [
        ("mpirun.log", None, 9),
        ("node1-worker0.log", "node1", 6),
        ("node1-worker9.log", "node1", 6),
        ("node1-worker10.log", "node1", 9),
        ("node2-worker0.log", "node2", 8),
    ]


def test_log_is_read_from_its_end(record):
    part = read_log(record, "node1-worker9.log", -3, 100)
    assert (part.text, part.offset, part.next_offset, part.size) == ("th\n", 3, 6, 6)


@pytest.mark.parametrize(
    "name",
    ["job.json", "node3-worker0.log", "../3/mpirun.log", "/etc/passwd", "", ".", "mpirun.log\0"],
)
def test_name_that_is_not_listed_is_never_opened(name, record):
    with pytest.raises(UsageError, match=r"training 3 has no log .*: it has mpirun\.log, node1-"):
        read_log(record, name, 0, 100)


def test_link_in_place_of_a_log_is_not_followed(record, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("of somebody else")
    (tmp_path / "mpirun.log").unlink()
    (tmp_path / "mpirun.log").symlink_to(secret)
    assert "mpirun.log" not in [log.name for log in list_logs(record)]
    assert read_log_part(tmp_path / "mpirun.log").text == ""


def test_pipe_in_place_of_a_log_keeps_nobody_waiting(tmp_path):
    os.mkfifo(tmp_path / "log")
    assert read_log_part(tmp_path / "log").text == ""


def test_folder_that_is_gone_has_no_logs(record, tmp_path):
    for file in tmp_path.iterdir():
        file.unlink()
    tmp_path.rmdir()
    assert list_logs(record) == []


def test_folder_that_no_file_system_can_have_has_no_logs(record):
    """Paths come from a database, which may be anybody's."""
    for path in ("/" + 10_000 * "x", "/a\0b"):
        assert list_logs(replace(record, run_directory=path)) == []


def test_logs_of_another_machine_are_told_to_be_there(record):
    elsewhere = replace(record.process, machine="node9", boot_id="another")
    with pytest.raises(UsageError, match=r"are in /.* on .*, not here"):
        list_logs(replace(record, process=elsewhere))


def test_part_is_bounded_and_cuts_no_character(tmp_path):
    log = tmp_path / "log"
    log.write_bytes(b"a" * (MOST_LOG_BYTES - 1) + "é".encode() + b"end")
    part = read_log_part(log, most_bytes=10**9)
    assert part.next_offset == MOST_LOG_BYTES - 1
    assert set(part.text) == {"a"}
    rest = read_log_part(log, part.next_offset)
    assert rest.text == "éend"
    assert rest.next_offset == rest.size
