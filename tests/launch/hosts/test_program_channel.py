"""What a program on a host says, and how it is known to have ended in order."""

from __future__ import annotations

from pathlib import Path

import pytest

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


def test_program_that_cannot_be_started_leaves_no_file_open(tmp_path):
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(FileNotFoundError) as raised:
        ProgramChannel("node1", [str(tmp_path / "ssh")], {})
    assert len(list(Path("/proc/self/fd").iterdir())) == before, raised
