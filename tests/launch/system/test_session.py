"""A command that ends takes along what it has started."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest

from launch.system.session import defer_signals, end_session, has_deferred_signal
from tests.ctrl_c import run_with_ctrl_c


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


def test_what_stands_still_goes_on_to_end_in_order():
    """It took no SIGTERM, and was killed when its time was up."""
    script = "set -m; (trap 'echo end; exit' TERM; echo $BASHPID; while :; do sleep 0.1; done) &"
    with subprocess.Popen(
        ["bash", "-c", script], stdout=subprocess.PIPE, start_new_session=True
    ) as left:
        pid = int(left.stdout.readline())
        left.wait()
        os.kill(pid, signal.SIGSTOP)
        end_session(left.pid, grace_s=30.0)
        assert left.stdout.read() == b"end\n"


def test_others_are_left_alone():
    with subprocess.Popen(["sleep", "1000"], start_new_session=True) as other:
        with subprocess.Popen(["true"], start_new_session=True) as ended:
            ended.wait()
            end_session(ended.pid, grace_s=0.5)
        assert other.poll() is None
        other.kill()


def test_signal_that_waits_for_the_end_of_a_block_is_known_in_it():
    known = [has_deferred_signal()]

    def look() -> None:
        with defer_signals():
            known.append(has_deferred_signal())
            signal.raise_signal(signal.SIGINT)
            with defer_signals():
                known.append(has_deferred_signal())

    with pytest.raises(KeyboardInterrupt):
        look()
    assert [*known, has_deferred_signal()] == [False, False, True, False]


def test_no_signal_at_any_moment_leaves_the_handlers_that_defer_them():
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def defer_nothing():
        with defer_signals():
            pass

    def end(number, _):
        raise KeyboardInterrupt(number)

    usual = {number: signal.signal(number, end) for number in numbers}
    try:
        for moment in range(1, 2000):
            try:
                was_reached = run_with_ctrl_c(defer_nothing, moment)
            except KeyboardInterrupt:
                was_reached = True
            assert {signal.getsignal(number) for number in numbers} == {end}, moment
            if not was_reached:
                break
        assert 10 < moment < 1999
    finally:
        for number, handler in usual.items():
            signal.signal(number, handler)
