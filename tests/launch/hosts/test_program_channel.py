"""What a program on a host says, and how it is known to have ended in order."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from launch.hosts import program_channel
from launch.hosts.program_channel import ProgramChannel
from launch.reports import Warned

ANSWERS = """
echo "Welcome to node1. You have mail."
read -r request
printf '%s\\n' "$request"
echo "no such file" >&2
read -r line
exit "$line"
"""


@pytest.mark.parametrize("code", [0, 3])
def test_lines_of_a_login_are_no_reports_and_the_end_is_told(code):
    """The story: a profile that greets ended every comparison with peers on several hosts."""
    channel = ProgramChannel(
        "node1", ["sh", "-c", ANSWERS], {"kind": "Warned", "message": "the disk is full"}
    )
    while not channel.reports:
        channel.read()
    assert list(channel.take()) == [Warned(message="the disk is full")]
    channel.send(b"%d\n" % code)
    while not channel.is_over:
        channel.read()
    assert channel.read_errors() == "no such file"
    channel.hang_up()
    channel.close()
    assert channel.was_killed == bool(code)


def test_programs_that_do_not_end_share_the_time_in_which_they_may(monkeypatch):
    """The story: each host that hung took twelve seconds of its own."""
    monkeypatch.setattr(program_channel, "_END_LIMIT_S", 0.2)
    wait, waits_s = subprocess.Popen.wait, []

    def wait_and_note(process, timeout=None):
        waits_s.append(timeout)
        return wait(process, timeout)

    monkeypatch.setattr(subprocess.Popen, "wait", wait_and_note)
    channels = [ProgramChannel(name, ["sleep", "600"], {}) for name in ("node1", "node2")]
    for channel in channels:
        channel.hang_up()
    for channel in channels:
        channel.close()
    first_s, _, second_s, _ = waits_s
    assert second_s <= 0 < first_s <= 0.2
    assert all(channel.was_killed for channel in channels)


def test_program_that_cannot_be_started_leaves_no_file_open(tmp_path):
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(FileNotFoundError) as raised:
        ProgramChannel("node1", [str(tmp_path / "ssh")], {})
    assert len(list(Path("/proc/self/fd").iterdir())) == before, raised
