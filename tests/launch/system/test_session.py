"""A command that ends takes along what it has started."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from launch.system.session import defer_signals, end_session


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


def test_no_signal_at_any_moment_leaves_the_handlers_that_defer_them():
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def end(number, _):
        raise KeyboardInterrupt(number)

    usual = {number: signal.signal(number, end) for number in numbers}
    try:
        for moment in range(1, 2000):
            was_raised = _raises_at(moment)
            assert {signal.getsignal(number) for number in numbers} == {end}, moment
            if not was_raised:
                break
        assert 10 < moment < 1999
    finally:
        for number, handler in usual.items():
            signal.signal(number, handler)


def _raises_at(moment):
    """Send a signal at a line of the block's begin or end; tell whether it has so many lines."""
    seen = 0

    def trace(frame, _event, _argument):
        nonlocal seen
        seen += 1
        if seen == moment:
            sys.settrace(None)
            signal.raise_signal(signal.SIGINT)
        return trace

    usual = sys.gettrace()
    try:
        sys.settrace(trace)
        with defer_signals():
            pass
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(usual)
    return False
