"""A document gets onto another host, whatever its size, and nobody else can read it there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from launch.errors import HostUnreachableError
from launch.hosts.host_line import Host
from launch.hosts.ssh import write_ssh_config
from launch.hosts.upload import upload

DOCUMENT = b"\0\n'$(x)\xff" * 100_000


@pytest.fixture
def first(testbed):
    """A host, and the configuration that leads to it."""
    bed = testbed(1)
    host = Host(name="node1", line=1)
    config = bed.folder / "job_ssh_config"
    write_ssh_config([host], config, include=bed.ssh_config)
    return bed.hosts[0], host, config


def test_document_arrives_whole_and_for_the_user_alone(first):
    there, host, config = first
    name = upload(host, DOCUMENT, ssh_config=config)
    assert there.run(["stat", "-c", "%a", name]).stdout == "600\n"
    assert there.run(["cat", name], text=False).stdout == DOCUMENT
    Path(name).unlink()


def test_host_that_does_not_take_it_is_named(first):
    there, host, config = first
    there.stop_sshd()
    with pytest.raises(HostUnreachableError, match="host node1 did not take"):
        upload(host, DOCUMENT, ssh_config=config)


def test_document_that_nobody_has_read_is_removed_by_a_later_one(tmp_path):
    """The story: where mpirun ended before its first rank had begun, it stayed for ever."""
    unread, awaited, other = files = [
        tmp_path / name for name in ("ddlplan-upload-1", "ddlplan-upload-2", "ddlplan-timing.lock")
    ]
    two_hours_ago = time.time() - 2 * 3600
    for file in files:
        file.write_bytes(b"a job")
        if file != awaited:
            os.utime(file, (two_hours_ago, two_hours_ago))
    ended = subprocess.run(
        [sys.executable, "-P", "-m", "launch.hosts.upload"],
        input=DOCUMENT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        timeout=240,
        check=True,
    )
    received = Path(json.loads(ended.stdout)["ddlplan_received"])
    assert received.read_bytes() == DOCUMENT
    assert {*tmp_path.iterdir()} == {received, awaited, other}
    assert not unread.exists()


FAILING = """#!/bin/sh
cat > /dev/null
echo "Traceback (most recent call last):" >&2
for line in $(seq 20); do echo "  File '/upload.py', line $line, in receive" >&2; done
echo "OSError: [Errno 28] No space left on device" >&2
exit 1
"""


def test_what_ended_it_on_the_host_is_told_and_not_how_it_came_to_that(tmp_path, monkeypatch):
    """The story: of a traceback the first 300 letters were told, without the error."""
    (tmp_path / "ssh").write_text(FAILING)
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(HostUnreachableError, match=r"OSError: .* No space left on device$"):
        upload(Host(name="node1", line=1), DOCUMENT, ssh_config=tmp_path / "config")


def test_host_that_takes_too_long_is_named_with_the_limit_and_without_the_command(
    tmp_path, monkeypatch
):
    """The story: it said "Command '['/usr/bin/env', ...]' timed out", with all that ssh is told."""
    (tmp_path / "ssh").write_text("#!/bin/sh\nexec sleep 600\n")
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr("launch.hosts.upload._LIMIT_S", 0.2)
    with pytest.raises(HostUnreachableError) as told:
        upload(Host(name="node1", line=1), DOCUMENT, ssh_config=tmp_path / "config")
    assert str(told.value) == (
        "host node1 did not take what the job is told within 0.2 s: see whether it still answers, "
        "with ddlplan doctor --hosts FILE, then try again"
    )


def test_nothing_is_left_of_a_document_that_has_no_room(tmp_path):
    """The story: its first part filled the disk for an hour more."""
    receive = [sys.executable, "-B", "-P", "-m", "launch.hosts.upload"]
    ended = subprocess.run(
        ["sh", "-c", 'ulimit -f 8; exec "$@"', "sh", *receive],
        input=DOCUMENT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        timeout=240,
        check=False,
    )
    assert b"File too large" in ended.stderr.splitlines()[-1]
    assert not [*tmp_path.iterdir()]
