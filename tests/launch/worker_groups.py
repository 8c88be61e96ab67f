"""Waiting for what becomes of workers."""

from __future__ import annotations

import time

import psutil
import pytest

from launch.workers.group import WorkerFailure, WorkerGroup, explain_failure


def first_failure(group: WorkerGroup, limit_s: float = 120) -> WorkerFailure:
    deadline = time.monotonic() + limit_s
    while (left_s := deadline - time.monotonic()) > 0:
        event = group.next_event(left_s)
        if event and (failure := explain_failure(group, event)):
            return failure
    raise AssertionError("no worker failed")


def count_oom_kills(monkeypatch: pytest.MonkeyPatch, kills: int) -> None:
    """Let the kernel kill so many for memory between a group's start and its failure.

    Another look between the two, as at each step, would fail.
    """
    counts = iter((3, 3 + kills))
    monkeypatch.setattr("launch.workers.group.oom_kill_count", lambda: next(counts))


def wait_until_gone(pids: list[int], limit_s: float = 60) -> None:
    deadline = time.monotonic() + limit_s
    while any(psutil.pid_exists(pid) and not is_zombie(pid) for pid in pids):
        assert time.monotonic() < deadline, "processes are left"
        time.sleep(0.02)


def is_zombie(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
