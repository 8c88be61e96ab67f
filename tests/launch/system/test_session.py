"""A command that ends takes along what it has started."""

from __future__ import annotations

import subprocess

import pytest

from launch.system.session import end_session


@pytest.mark.parametrize("trap", ["", "trap : TERM;"])
def test_what_a_command_left_in_groups_of_its_own_ends_with_its_session(trap):
    script = f"set -m; (echo on; {trap} while :; do sleep 0.1; done) &"
    with subprocess.Popen(
        ["bash", "-c", script], stdout=subprocess.PIPE, start_new_session=True
    ) as left:
        assert left.stdout.readline() == b"on\n"
        left.wait()
        end_session(left.pid, grace_s=0.5)
        assert left.stdout.read() == b""  # nobody holds the other end any more


def test_others_are_left_alone():
    with subprocess.Popen(["sleep", "1000"], start_new_session=True) as other:
        with subprocess.Popen(["true"], start_new_session=True) as ended:
            ended.wait()
            end_session(ended.pid, grace_s=0.5)
        assert other.poll() is None
        other.kill()
