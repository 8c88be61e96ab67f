"""The queue of writers, where the program that has the turn stands still."""

from __future__ import annotations

import fcntl
import os
import signal
import threading
import time

import pytest

from launch.system.folder_queue import queued
from launch.system.session import defer_signals


def test_writes_beside_a_program_that_stands_still_leave_no_more_than_two_threads(tmp_path):
    before = threading.active_count()
    holder = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(holder, fcntl.LOCK_EX)
        for _ in range(20):
            with queued(tmp_path, 0.01):
                pass
        assert threading.active_count() - before <= 2
    finally:
        os.close(holder)
    while threading.active_count() > before:
        time.sleep(0.01)
    with queued(tmp_path, 5.0):
        other = os.open(tmp_path, os.O_RDONLY)
        try:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            is_held = True
        else:
            is_held = False
        finally:
            os.close(other)
    assert is_held


def test_the_turn_is_given_back_though_a_child_has_the_descriptor_still(tmp_path):
    with queued(tmp_path, 5.0):
        reading, writing = os.pipe()
        if (child := os.fork()) == 0:
            os.close(writing)
            os.read(reading, 1)  # until the parent closes its end
            os._exit(0)
        os.close(reading)
    other = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(other)
        os.close(writing)
        os.waitpid(child, 0)


def test_ctrl_c_ends_the_wait_for_the_turn_though_it_is_deferred(tmp_path):
    before = threading.active_count()
    holder = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(holder, fcntl.LOCK_EX)
        began = time.monotonic()
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt), defer_signals(), queued(tmp_path, 60):
            pass
        assert time.monotonic() - began < 30
    finally:
        os.close(holder)
    while threading.active_count() > before:
        time.sleep(0.01)
