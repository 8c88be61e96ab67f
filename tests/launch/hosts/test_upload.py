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
