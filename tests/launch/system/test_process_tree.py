"""What a command leaves running is found and ended, in whatever session it is."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

from launch.system import process_tree
from launch.system.process_tree import find_descendants, has_ended, open_end
from tests.launch.awaited_daemon import AWAITING

LEAVING = """
import subprocess, sys
sys.argv[1:] == ["deaf"] and __import__("signal").signal(15, __import__("signal").SIG_IGN)
started = [
    subprocess.Popen(["sleep", "600"], start_new_session=True, stdout=subprocess.DEVNULL)
    for _ in range(2)
]
print(*(process.pid for process in started), flush=True)
"""
OWNER = """
import os, subprocess, sys
from launch.system.process_tree import *
adopt_orphans()
command = subprocess.Popen([sys.executable, "-c", sys.argv[1], *sys.argv[2:]])
while not has_ended(command.pid):
    reap_orphans(command.pid)
print(command.wait(), len(find_descendants(os.getpid())), flush=True)
end_descendants(grace_s=0.5)
print(len(find_descendants(os.getpid())), flush=True)
"""


@pytest.mark.parametrize("how", ["usual", "deaf"])
def test_orphans_in_sessions_of_their_own_are_ended(how):
    ended = subprocess.run(
        [sys.executable, "-c", OWNER, LEAVING, how], capture_output=True, text=True, timeout=60
    )
    assert ended.stderr == ""
    pids, before, after = ended.stdout.splitlines()
    assert (before, after) == ("0 2", "0")
    assert not [pid for pid in pids.split() if Path(f"/proc/{pid}").exists()]


ADOPTER = """
import subprocess, sys
from launch.system.process_tree import adopt_orphans, end_descendants
adopt_orphans()
command = subprocess.Popen([sys.executable, "-c", *sys.argv[1:]], stdout=subprocess.PIPE)
command.stdout.readline()
end_descendants(grace_s=30.0)
"""


def test_daemon_that_has_ended_vanishes_for_what_waits_for_that(tmp_path):
    """It stayed as a zombie of its adopter, and who looked for its number was killed in the end."""
    command = AWAITING + "print('on', flush=True)\ntime.sleep(600)\n"
    adopter = [sys.executable, "-c", ADOPTER, command, str(tmp_path / "command")]
    subprocess.run(adopter, check=True, timeout=60)
    assert (tmp_path / "in order").exists()


@pytest.mark.parametrize(("call", "count"), [(process_tree._PIDFD_OPEN, 1), (-1, 0)])
def test_end_of_a_child_can_be_waited_for_where_the_kernel_can(call, count, monkeypatch):
    """The story: Python of conda and of uv had no `os.pidfd_open`, nor had old kernels the call."""
    monkeypatch.delattr(os, "pidfd_open", raising=False)
    monkeypatch.setattr(process_tree, "_PIDFD_OPEN", call)
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as child:
        end = open_end(child.pid)
        assert len(end) == count
        assert select.select(end, [], [], 0.0)[0] == []
        assert not has_ended(child.pid)
        child.stdin.close()
        assert select.select(end, [], [], 60.0 if end else 0.0)[0] == end
        assert has_ended(child.pid) or not end
    for descriptor in end:
        os.close(descriptor)


def test_descendants_are_found_below_children_whatever_bytes_their_names_are():
    """A name is cut after 15 bytes, in the middle of a letter too: then nothing could be ended."""
    child = (
        "from launch.system.process_end import read_parent_name; "
        "print(ascii(read_parent_name()), flush=True); input()"
    )
    program = (
        "import ctypes, subprocess, sys; ctypes.CDLL(None).prctl(15, b'\\xe6\\x97'); "
        f"subprocess.run([sys.executable, '-c', {child!r}])"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout.readline() == b"'\\ufffd'\n"
        found = find_descendants(process.pid)
        assert found
        assert found < find_descendants(os.getpid())
        process.stdin.write(b"\n")


def test_child_that_nobody_can_wait_for_has_ended():
    """Where SIGCHLD was ignored before Python began, as some starters of jobs leave it."""
    said = subprocess.run(
        [
            *("env", "--ignore-signal=CHLD", sys.executable, "-c"),
            "import subprocess, time\n"
            "from launch.system.process_tree import has_ended\n"
            "child = subprocess.Popen(['true'])\n"
            "while not has_ended(child.pid):\n"
            "    time.sleep(0.01)\n"
            "print('ended')",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout == "ended\n"
